"""A small random model of each architecture of transformers, made from its own config class, and inputs for it.

A config's sizes are found under the names that transformers uses and made small; what that does not get right is in `SETTINGS`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from transformers.models.auto import modeling_auto as auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

VOCABULARY = 61
TEXT_ENCODERS = [
    "albert",
    "bert",
    "big_bird",
    "big_bird, original_full",
    "camembert",
    "canine",
    "convbert",
    "data2vec-text",
    "deberta",
    "deberta-v2",
    "distilbert",
    "electra",
    "ernie",
    "esm",
    "eurobert",
    "flaubert",
    "fnet",
    "funnel",
    "ibert",
    "layoutlm",
    "lilt",
    "longformer",
    "luke",
    "markuplm",
    "megatron-bert",
    "mobilebert",
    "modernbert",
    "mpnet",
    "mra",
    "nomic_bert",
    "nystromformer",
    "rembert",
    "roberta",
    "roberta-prelayernorm",
    "roc_bert",
    "roformer",
    "squeezebert",
    "tapas",
    "xlm",
    "xlm-roberta",
    "xlm-roberta-xl",
    "xlnet",
    "xmod",
    "yoso",
]
DECODERS = [
    "afmoe",
    "apertus",
    "arcee",
    "biogpt",
    "bitnet",
    "bloom",
    "codegen",
    "cohere",
    "cohere2",
    "cpmant",
    "ctrl",
    "deepseek_v2",
    "deepseek_v3",
    "diffllama",
    "doge",
    "dots1",
    "ernie4_5",
    "exaone4",
    "falcon",
    "falcon_h1",
    "gemma",
    "gemma2",
    "gemma3_text",
    "glm",
    "glm4",
    "gpt2",
    "gpt_bigcode",
    "gpt_neo",
    "gpt_neox",
    "gpt_neox_japanese",
    "gpt_oss",
    "gptj",
    "granite",
    "granitemoe",
    "helium",
    "jamba",
    "jetmoe",
    "lfm2",
    "llama",
    "mamba",
    "mamba2",
    "minimax",
    "mistral",
    "mixtral",
    "modernbert-decoder",
    "mpt",
    "nemotron",
    "olmo",
    "olmo2",
    "olmo3",
    "olmoe",
    "openai-gpt",
    "opt",
    "persimmon",
    "phi",
    "phi3",
    "phimoe",
    "qwen2",
    "qwen2_moe",
    "qwen3",
    "qwen3_moe",
    "qwen3_next",
    "recurrent_gemma",
    "reformer",
    "rwkv",
    "seed_oss",
    "smollm3",
    "stablelm",
    "starcoder2",
    "xglm",
    "zamba2",
]
SEQ2SEQ = [
    "bart",
    "bigbird_pegasus",
    "bigbird_pegasus, original_full",
    "blenderbot",
    "blenderbot-small",
    "fsmt",
    "led",
    "longt5",
    "m2m_100",
    "marian",
    "mbart",
    "mt5",
    "mvp",
    "nllb-moe",
    "pegasus",
    "pegasus_x",
    "plbart",
    "prophetnet",
    "switch_transformers",
    "t5",
    "umt5",
]
IMAGES = [
    "beit",
    "convnext",
    "data2vec-vision",
    "deit",
    "dinov2",
    "dinov2_with_registers",
    "donut-swin",
    "hiera",
    "ijepa",
    "levit",
    "mobilevit",
    "pvt",
    "pvt_v2",
    "segformer",
    "swin",
    "swinv2",
    "vit",
    "vit_mae",
    "vit_msn",
]
SPEECH = [
    "data2vec-audio",
    "hubert",
    "sew",
    "sew-d",
    "unispeech",
    "unispeech-sat",
    "wav2vec2",
    "wav2vec2-conformer",
    "wavlm",
]
PAIRS = ["align", "altclip", "blip", "chinese_clip", "clip", "clipseg", "siglip", "vilt"]
KINDS = {
    **dict.fromkeys(TEXT_ENCODERS, "encoder"),
    **dict.fromkeys(DECODERS, "decoder"),
    **dict.fromkeys(SEQ2SEQ, "seq2seq"),
    **dict.fromkeys(IMAGES, "image"),
    **dict.fromkeys(SPEECH, "speech"),
    **dict.fromkeys(PAIRS, "pair"),
}

_SIZES: dict[str, Any] = {
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "dim", "embed_dim", "emb_dim", "embedding_size"), 32),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers"), 2),
    **dict.fromkeys(("num_decoder_layers", "num_encoder_layers"), 2),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads"), 4),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4),
    **dict.fromkeys(("num_encoder_attention_heads", "num_decoder_attention_heads"), 4),
    **dict.fromkeys(("num_key_value_heads", "num_kv_heads"), 2),
    **dict.fromkeys(
        ("intermediate_size", "d_ff", "d_inner", "hidden_dim", "encoder_ffn_dim", "decoder_ffn_dim", "n_inner"), 48
    ),
    **dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size", "ffn_dim", "dff"), 48),
    **dict.fromkeys(("head_dim", "d_kv", "d_head"), 8),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len"), 64),
    **dict.fromkeys(("vocab_size", "src_vocab_size", "tgt_vocab_size"), VOCABULARY),
    **dict.fromkeys(("num_local_experts", "num_experts", "n_routed_experts"), 4),
    **dict.fromkeys(("num_experts_per_tok", "num_selected_experts"), 2),
    "image_size": 16,
    "patch_size": 4,
    "projection_dim": 16,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_TWO_LAYERS = ("layer_types", "layers_block_type", "attention_types", "mlp_layer_types", "sparse_layers")
_CONVOLUTIONS = {
    "conv_dim": (16, 16),
    "conv_stride": (4, 2),
    "conv_kernel": (4, 3),
    "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 4,
    "num_conv_pos_embedding_groups": 2,
    "feat_extract_norm": "layer",
    "squeeze_factor": 2,
    "mask_time_prob": 0.0,
    "conv_pos_kernel_size": 5,
    "num_conv_pos_embedding": 4,
}
_SWIN = {"image_size": 32, "patch_size": 4, "embed_dim": 16, "depths": [2, 1], "num_heads": [2, 4], "window_size": 4}
_LATENT = {
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
    "head_dim": 8,
}
_EXPERTS = {"n_group": 1, "topk_group": 1, "n_shared_experts": 1, "first_k_dense_replace": 1}
_ATTENTION_LAST = {"layer_types": ["linear_attention", "full_attention"]}
SETTINGS: dict[str, dict[str, Any]] = {
    "align": {"projection_dim": 640, "vision_config": {"image_size": 64, "num_hidden_layers": 2, "hidden_dim": 2560}},
    "big_bird, original_full": {"attention_type": "original_full"},
    "bigbird_pegasus, original_full": {"attention_type": "original_full"},
    "swin": _SWIN,
    "swinv2": _SWIN,
    "donut-swin": _SWIN,
    "deberta": {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]},
    "deberta-v2": {
        "relative_attention": True,
        "pos_att_type": ["p2c", "c2p"],
        "position_buckets": 4,
        "share_att_key": True,
    },
    "recurrent_gemma": {"num_hidden_layers": 3, "lru_width": 32, "attention_window_size": 4},
    "falcon_h1": {"mamba_d_ssm": 32, "mamba_n_heads": 4, "mamba_d_head": 8, "mamba_d_state": 8, "mamba_n_groups": 1},
    "lilt": {"hidden_size": 48, "channel_shrink_ratio": 2},
    "luke": {"entity_vocab_size": 10, "entity_emb_size": 8},
    "markuplm": {"xpath_unit_hidden_size": 8},
    "mobilebert": {"intra_bottleneck_size": 32, "true_hidden_size": 32, "embedding_size": 16},
    "roc_bert": {
        "pronunciation_vocab_size": 20,
        "shape_vocab_size": 20,
        "pronunciation_embed_dim": 8,
        "shape_embed_dim": 8,
    },
    "xmod": {"default_language": "en_XX"},
    "canine": {"num_hash_buckets": 32, "type_vocab_size": 2, "downsampling_rate": 2, "local_transformer_stride": 4},
    "codegen": {"rotary_dim": 4},
    "gptj": {"rotary_dim": 4},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]], "window_size": 4},
    "cpmant": {"dim_head": 8},
    "deepseek_v2": {**_LATENT, **_EXPERTS, "num_key_value_heads": 4},
    "deepseek_v3": {**_LATENT, **_EXPERTS, "num_key_value_heads": 4},
    "dots1": {**_EXPERTS, "n_routed_experts": 4, "routed_scaling_factor": 1.0, "norm_topk_prob": True},
    "jamba": {"num_hidden_layers": 2, "attn_layer_period": 2, "attn_layer_offset": 1, "use_mamba_kernels": False},
    "mamba": {"conv_kernel": 4},
    "mamba2": {"conv_kernel": 4, "head_dim": 16, "num_heads": 4, "n_groups": 1},
    "qwen3_next": _ATTENTION_LAST,
    "zamba2": {
        "layers_block_type": ["mamba", "hybrid"],
        "mamba_d_state": 8,
        "mamba_headdim": 16,
        "n_mamba_heads": 4,
        "mamba_ngroups": 1,
        "attention_head_dim": 16,
        "attention_hidden_size": 64,
        "num_mem_blocks": 1,
        "num_key_value_heads": 4,
        "adapter_rank": 4,
    },
    "reformer": {
        "is_decoder": True,
        "attn_layers": ["local", "lsh"],
        "axial_pos_embds": False,
        "feed_forward_size": 48,
    },
    "fsmt": {"use_cache": False},  # with a cache it masks nothing
    "led": {"max_encoder_position_embeddings": 64, "max_decoder_position_embeddings": 64, "attention_window": 4},
    "longformer": {"attention_window": 4},
    "convnext": {"image_size": 32, "hidden_sizes": [8, 16], "depths": [1, 1], "num_stages": 2},
    "hiera": {"image_size": [32, 32], "embed_dim": 8, "depths": [1, 1], "num_heads": [1, 2], "num_query_pool": 1},
    "levit": {"image_size": 128, "patch_size": 16},
    "mobilevit": {
        "image_size": 128,
        "patch_size": 2,
        "hidden_sizes": [16, 24, 32],
        "neck_hidden_sizes": [8, 8, 8, 8, 8, 8, 16],
    },
    "pvt": {
        "image_size": 64,
        "hidden_sizes": [8, 16, 32, 32],
        "depths": [1, 1, 1, 1],
        "num_attention_heads": [1, 2, 4, 4],
        "sequence_reduction_ratios": [2, 2, 1, 1],
        "patch_sizes": [4, 2, 2, 2],
        "strides": [4, 2, 2, 2],
    },
    "pvt_v2": {
        "image_size": 64,
        "hidden_sizes": [8, 16, 32, 32],
        "depths": [1, 1, 1, 1],
        "num_attention_heads": [1, 2, 4, 4],
        "sr_ratios": [2, 2, 1, 1],
    },
    "segformer": {
        "hidden_sizes": [8, 16, 32, 32],
        "depths": [1, 1, 1, 1],
        "num_attention_heads": [1, 2, 4, 4],
        "decoder_hidden_size": 16,
    },
    "vit_mae": {
        "decoder_hidden_size": 32,
        "decoder_num_hidden_layers": 2,
        "decoder_num_attention_heads": 4,
        "decoder_intermediate_size": 48,
    },
}
MODELS: dict[str, str] = {"vilt": "ViltForQuestionAnswering", "vit_mae": "ViTMAEForPreTraining"}
"""Classes where the Auto classes have none, or not the one that is used."""
_HEADS = {
    "encoder": (
        auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES,
        auto.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES,
        auto.MODEL_MAPPING_NAMES,
    ),
    "decoder": (auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,),
    "seq2seq": (auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,),
    "image": (auto.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES,),
    "speech": (auto.MODEL_FOR_CTC_MAPPING_NAMES,),
    "pair": (auto.MODEL_FOR_ZERO_SHOT_IMAGE_CLASSIFICATION_MAPPING_NAMES,),
}


@dataclass(frozen=True)
class SmallModel:
    """One architecture; after a comma in its name, which form of it."""

    name: str
    kind: str

    @property
    def type(self) -> str:
        """The name of its kind of config."""
        return self.name.partition(", ")[0]

    @property
    def model_class(self) -> str:
        """The name of its class in transformers."""
        found = MODELS.get(self.type) or next(
            (names[self.type] for names in _HEADS[self.kind] if self.type in names), None
        )
        if found is None:
            raise ValueError(f"transformers has no {self.kind} of type {self.type!r}.")
        return found[0] if isinstance(found, (tuple, list)) else found

    def build(self) -> nn.Module:
        """With random weights, always the same, in eval mode; scores are large enough for attention to matter."""
        torch.manual_seed(0)
        config_class = CONFIG_MAPPING[self.type]
        settings = {**_small(config_class), **SETTINGS.get(self.name, {})}
        model = getattr(transformers, self.model_class)(config_class(**settings)).eval()
        with torch.no_grad():
            for weight in model.parameters():
                if weight.dim() >= 2 and weight.requires_grad:
                    weight.copy_(torch.randn_like(weight) * weight[0].numel() ** -0.5)
        return model

    def inputs(self, model: Any) -> dict[str, Any]:
        """Two examples, the second shorter."""
        generator = torch.Generator().manual_seed(1)
        ids = torch.randint(3, VOCABULARY, (2, 9), generator=generator)
        mask = torch.ones_like(ids)
        mask[1, 6:] = 0
        text = {"input_ids": ids.masked_fill(mask == 0, 0), "attention_mask": mask}
        if self.kind == "image":
            return {"pixel_values": _images(model.config, generator)}
        if self.kind == "pair":
            text["input_ids"][:, 5] = 2  # the end token, whose state some of them pool
            return {**text, "pixel_values": _images(model.config, generator)}
        if self.kind == "speech":
            audio = torch.randn(2, 200, generator=generator)
            heard = torch.ones(2, 200, dtype=torch.long)
            heard[1, 120:] = 0
            return {"input_values": audio * heard, "attention_mask": heard}
        if self.kind == "seq2seq":
            target = torch.randint(3, VOCABULARY, (2, 7), generator=generator)
            target_mask = torch.ones_like(target)
            target_mask[1, 5:] = 0
            return {**text, "decoder_input_ids": target, "decoder_attention_mask": target_mask}
        return {**text, **MORE_INPUTS.get(self.name, dict)()}


MORE_INPUTS: dict[str, Callable[[], dict[str, Tensor]]] = {
    "layoutlm": lambda: {"bbox": torch.arange(4).expand(2, 9, 4) * 10},
    "lilt": lambda: {"bbox": torch.arange(4).expand(2, 9, 4) * 10},
    "longformer": lambda: {
        "global_attention_mask": torch.tensor([[1, 0, 0, 0, 0, 1, 0, 0, 0], [0, 0, 0, 1, 0, 0, 0, 0, 0]])
    },
}


def _images(config: Any, generator: torch.Generator) -> Tensor:
    vision = getattr(config, "vision_config", config)
    size = getattr(vision, "image_size", 64)
    height, width = size if isinstance(size, (tuple, list)) else (size, size)
    return torch.randn(2, getattr(vision, "num_channels", 3), height, width, generator=generator)


def _small(config_class: type) -> dict[str, Any]:
    """Small values of the sizes that this config has."""
    default = config_class()
    given: dict[str, Any] = {}
    for name, value in default.to_dict().items():
        part = getattr(config_class, "sub_configs", {}).get(name)
        if part is not None and hasattr(part, "model_type") and part.model_type:
            given[name] = _small(part)
        elif name in _CONVOLUTIONS and "conv_dim" in default.to_dict():
            given[name] = _CONVOLUTIONS[name]
        elif name in _TWO_LAYERS and isinstance(value, (list, tuple)):
            given[name] = value[:2]
        elif name in _SIZES and (value is None or isinstance(value, int)) and not isinstance(value, bool):
            given[name] = _SIZES[name]
    return given


def all_models() -> list[SmallModel]:
    """Every architecture of the matrix."""
    return [SmallModel(name, kind) for name, kind in KINDS.items()]
