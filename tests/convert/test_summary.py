"""Every layer that does attention is accounted for: converted, left out, or refused by its name; nothing is half converted in silence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn

import bayesattn as ba
from bayesattn.convert.accounting import does_attention
from bayesattn.huggingface import from_pretrained

SMALL: dict[str, Any] = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "vocab_size": 30,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
SEQ2SEQ: dict[str, Any] = {
    f"{part}_{size}": number
    for part in ("encoder", "decoder")
    for size, number in {"layers": 1, "attention_heads": 2, "ffn_dim": 16}.items()
}
IMAGE: dict[str, Any] = {
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 16,
    "patch_size": 8,
}


def long_t5() -> nn.Module:
    sizes = {"d_model": 16, "d_kv": 8, "num_heads": 2, "d_ff": 16, "num_layers": 1, "vocab_size": 30}
    return transformers.LongT5Model(transformers.LongT5Config(encoder_attention_type="local", **sizes))


def big_bird_pegasus() -> nn.Module:
    return transformers.BigBirdPegasusModel(
        transformers.BigBirdPegasusConfig(vocab_size=30, d_model=16, bos_token_id=1, eos_token_id=2, **SEQ2SEQ)
    )


def git() -> nn.Module:
    return transformers.GitModel(transformers.GitConfig(vision_config=IMAGE, **SMALL))


def clap() -> nn.Module:
    audio = {
        "patch_embeds_hidden_size": 16,
        "depths": [1, 1],
        "num_attention_heads": [2, 2],
        "hidden_size": 32,
        "spec_size": 64,
        "window_size": 2,
        "num_mel_bins": 8,
    }
    return transformers.ClapModel(transformers.ClapConfig(text_config=SMALL, audio_config=audio, projection_dim=8))


def siglip() -> nn.Module:
    return transformers.SiglipModel(transformers.SiglipConfig(text_config=SMALL, vision_config=IMAGE))


@pytest.mark.parametrize(
    ("build", "layer"),
    [
        (long_t5, "LongT5LocalAttention"),
        (big_bird_pegasus, "BigBirdPegasusBlockSparseAttention"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_a_model_part_of_whose_attention_is_out_of_reach_is_refused_and_left_as_it_was(
    build: Callable[[], nn.Module], layer: str
) -> None:
    model = build()
    with pytest.raises(
        ValueError, match=rf"cannot be converted.*{layer} is not one softmax over the keys.*Choose the others"
    ):
        ba.convert(model, ba.Weibull(k=10.0))
    before = ba.summary(model)
    assert before.of("converted") == []
    others = [each.name for each in before.of("left as it was")]
    ba.convert(model, ba.Weibull(k=10.0), where=others)
    after = ba.summary(model)
    assert [each.name for each in after.of("converted")] == others
    assert {each.kind for each in after.of("cannot be converted")} == {layer}
    assert layer in str(after)


@pytest.mark.parametrize("build", [git, clap])
def test_layers_of_both_kinds_in_one_model_are_converted(build: Callable[[], nn.Module]) -> None:
    model = build().eval()
    ids = torch.arange(3, 11).view(2, 4)
    if build is git:
        inputs = {"input_ids": ids, "pixel_values": torch.randn(2, 3, 16, 16)}
    else:
        inputs = {"input_ids": ids, "input_features": torch.randn(2, 1, 100, 8), "is_longer": torch.ones(2, 1).bool()}
    expected = next(iter(model(**inputs).values()))
    assert ba.summary(model).of("cannot be converted") == []
    ba.convert(model, ba.Softmax())
    with ba.record() as latents:
        torch.testing.assert_close(next(iter(model(**inputs).values())), expected)
    assert len(latents.local_terms) == len(ba.summary(model).of("converted")) >= 3
    assert latents.local_kl.shape == (2,)


def test_a_torch_layer_in_a_hugging_face_model_is_saved_and_loaded_too(tmp_path: Path) -> None:
    model = ba.convert(siglip(), ba.Weibull(k=7.0, prior=ba.ContextualGamma()))
    assert len(ba.summary(model).of("converted")) == len(ba.summary(model).layers) == 4
    model.save_pretrained(tmp_path)  # pyright: ignore
    loaded = from_pretrained(transformers.SiglipModel, tmp_path)
    assert str(ba.summary(loaded)) == str(ba.summary(model))
    state, expected = loaded.state_dict(), model.state_dict()
    assert state.keys() == expected.keys()
    assert all(torch.equal(state[name], expected[name]) for name in expected)


class OwnAttention(nn.Module):
    """Somebody's own."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(8, 24)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.project(x).chunk(3, -1)
        return self._weights(query, key) @ value

    def _weights(self, query: Tensor, key: Tensor) -> Tensor:
        return (query @ key.transpose(-2, -1)).softmax(-1)


class Router(nn.Module):
    """A softmax, and no attention."""

    def forward(self, x: Tensor) -> Tensor:
        return x.softmax(-1)


def test_attention_is_known_by_what_its_code_does() -> None:
    assert does_attention(OwnAttention)
    assert does_attention(nn.MultiheadAttention)
    assert not any(map(does_attention, (Router, nn.Linear, nn.LSTM, nn.TransformerEncoderLayer, nn.Softmax)))
    model = nn.Sequential(nn.TransformerEncoderLayer(8, 2, batch_first=True), OwnAttention(), Router())
    with pytest.raises(ValueError, match="'1': OwnAttention computes attention by itself"):
        ba.convert(model, ba.Weibull())
    ba.convert(model, ba.Weibull(), where="0.*")
    assert [layer.state for layer in ba.summary(model).layers] == ["converted", "cannot be converted"]


def test_a_part_that_is_only_called_posterior_is_not_counted() -> None:
    model = nn.Module()
    model.posterior = nn.Linear(2, 2)
    assert ba.summary(model).layers == []
