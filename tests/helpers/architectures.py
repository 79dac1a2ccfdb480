"""Small random models of many architectures, with inputs that have padding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

VOCABULARY = 61
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
DECODER = {**SIZES, "num_key_value_heads": 2, "head_dim": 8}
SEQ2SEQ: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
    "forced_eos_token_id": None,
}


@dataclass(frozen=True)
class Case:
    """How to build one architecture, how often its attention runs in a forward pass, and what kind of model it is."""

    name: str
    model: str
    config: str
    settings: dict[str, Any]
    layers: int
    runs: int
    kind: str  # encoder, decoder, seq2seq, image, clip

    def build(self) -> nn.Module:
        import transformers

        torch.manual_seed(0)
        config = getattr(transformers, self.config)(**self.settings)
        model = getattr(transformers, self.model)(config).eval()
        for name, weight in model.named_parameters():
            # the attention of a fresh model is nearly uniform: larger projections make it matter
            if weight.dim() == 2 and "embed" not in name and "shared" not in name:
                with torch.no_grad():
                    weight.mul_(4.0)
        return model

    def inputs(self, seed: int = 1) -> dict[str, Tensor]:
        """Two examples, the second with padding."""
        generator = torch.Generator().manual_seed(seed)
        ids = torch.randint(3, VOCABULARY, (2, 9), generator=generator)
        mask = torch.ones_like(ids)
        mask[1, 6:] = 0
        text = {"input_ids": ids.masked_fill(mask == 0, 0), "attention_mask": mask}
        image = {"pixel_values": torch.randn(2, 3, 16, 16, generator=generator)}
        if self.kind == "image":
            return image
        if self.kind == "clip":
            text["input_ids"][:, 5] = VOCABULARY - 1  # the end token, whose state CLIP pools
            return {**text, **image}
        if self.kind == "seq2seq":
            target = torch.randint(3, VOCABULARY, (2, 7), generator=generator)
            target_mask = torch.ones_like(target)
            target_mask[1, 5:] = 0
            return {**text, "decoder_input_ids": target, "decoder_attention_mask": target_mask}
        return text


def _bert_like(name: str, model: str, config: str, **more: Any) -> Case:
    return Case(name, model, config, {**SIZES, **more}, 2, 2, "encoder")


def _decoder(name: str, model: str, config: str, **more: Any) -> Case:
    return Case(name, model, config, {**DECODER, **more}, 2, 2, "decoder")


_CLIP_PART = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}

CASES = [
    Case(
        "ALBERT",
        "AlbertForMaskedLM",
        "AlbertConfig",
        {**SIZES, "num_hidden_layers": 3, "embedding_size": 16},
        1,
        3,
        "encoder",
    ),
    Case("BART", "BartForConditionalGeneration", "BartConfig", SEQ2SEQ, 6, 6, "seq2seq"),
    _bert_like("BERT", "BertForMaskedLM", "BertConfig"),
    Case(
        "CLIP",
        "CLIPModel",
        "CLIPConfig",
        {
            "text_config": {
                **_CLIP_PART,
                "vocab_size": VOCABULARY,
                "max_position_embeddings": 16,
                "eos_token_id": VOCABULARY - 1,
                "bos_token_id": 1,
                "pad_token_id": 0,
            },
            "vision_config": {**_CLIP_PART, "image_size": 16, "patch_size": 8},
            "projection_dim": 16,
        },
        4,
        4,
        "clip",
    ),
    Case(
        "DistilBERT",
        "DistilBertForMaskedLM",
        "DistilBertConfig",
        {
            "vocab_size": VOCABULARY,
            "dim": 32,
            "n_layers": 2,
            "n_heads": 4,
            "hidden_dim": 48,
            "max_position_embeddings": 64,
        },
        2,
        2,
        "encoder",
    ),
    Case(
        "GPT-2",
        "GPT2LMHeadModel",
        "GPT2Config",
        {
            "vocab_size": VOCABULARY,
            "n_embd": 32,
            "n_layer": 2,
            "n_head": 4,
            "n_positions": 64,
            "bos_token_id": 1,
            "eos_token_id": 2,
        },
        2,
        2,
        "decoder",
    ),
    _decoder("Gemma", "GemmaForCausalLM", "GemmaConfig"),
    _decoder(
        "Gemma 2",
        "Gemma2ForCausalLM",
        "Gemma2Config",
        sliding_window=4,
        attn_logit_softcapping=2.0,
        query_pre_attn_scalar=8,
        attn_implementation="eager",
    ),
    _decoder(
        "Gemma 3",
        "Gemma3ForCausalLM",
        "Gemma3TextConfig",
        sliding_window=4,
        query_pre_attn_scalar=8,
        layer_types=["sliding_attention", "full_attention"],
    ),
    _decoder("Llama", "LlamaForCausalLM", "LlamaConfig"),
    Case("Marian", "MarianMTModel", "MarianConfig", SEQ2SEQ, 6, 6, "seq2seq"),
    _decoder("Mistral", "MistralForCausalLM", "MistralConfig", sliding_window=4),
    _bert_like(
        "ModernBERT",
        "ModernBertForMaskedLM",
        "ModernBertConfig",
        local_attention=4,
        global_attn_every_n_layers=2,
        cls_token_id=1,
        sep_token_id=2,
    ),
    _decoder("Qwen 2", "Qwen2ForCausalLM", "Qwen2Config"),
    _decoder("Qwen 3", "Qwen3ForCausalLM", "Qwen3Config"),
    _bert_like("RoBERTa", "RobertaForMaskedLM", "RobertaConfig"),
    Case(
        "T5",
        "T5ForConditionalGeneration",
        "T5Config",
        {
            "vocab_size": VOCABULARY,
            "d_model": 32,
            "d_kv": 8,
            "d_ff": 48,
            "num_layers": 2,
            "num_heads": 4,
            "pad_token_id": 0,
            "eos_token_id": 2,
            "decoder_start_token_id": 0,
        },
        6,
        6,
        "seq2seq",
    ),
    Case(
        "ViT",
        "ViTForImageClassification",
        "ViTConfig",
        {**_CLIP_PART, "image_size": 16, "patch_size": 8, "num_labels": 5},
        2,
        2,
        "image",
    ),
]
BY_NAME = {case.name: case for case in CASES}


def outputs(kind: str) -> Callable[[Any], Tensor]:
    """Takes the tensor to compare out of a model's output."""
    return (lambda output: output.logits_per_text) if kind == "clip" else (lambda output: output.logits)
