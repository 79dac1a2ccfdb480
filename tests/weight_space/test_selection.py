"""Which layers: where= of this package."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import bayesattn as ba
from bayesattn.experiments.models.timeseries import TimeSeriesTransformer
from bayesattn.weight_space.selection import choose_layers

MODEL = TimeSeriesTransformer(6, 8, depth=2, feedforward=8)
BLOCK = "encoder.layers.0"


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("head", ["head"]),
        ("last", ["head"]),
        (-1, ["head"]),
        (f"{BLOCK}.self_attn", [f"{BLOCK}.self_attn", f"{BLOCK}.self_attn.out_proj"]),
        ("*.norm1", [f"{BLOCK}.norm1", "encoder.layers.1.norm1"]),
        (["head", "*.0.norm?"], [f"{BLOCK}.norm1", f"{BLOCK}.norm2", "head"]),
        (lambda name, module: isinstance(module, nn.Embedding) or name == "", [""]),
    ],
)
def test_where(where: object, expected: list[str]) -> None:
    assert list(choose_layers(MODEL, where)) == expected  # pyright: ignore[reportArgumentType]


def test_all_is_every_module_with_parameters() -> None:
    names = {name for layer in choose_layers(MODEL, None) for name in [layer]}
    owned = {name.rpartition(".")[0] for name, _ in MODEL.named_parameters()}
    assert names == owned == set(choose_layers(MODEL, "all"))


def test_attention_is_what_convert_would_convert() -> None:
    expected = [f"encoder.layers.{i}.self_attn{part}" for i in range(2) for part in ("", ".out_proj")]
    assert list(choose_layers(MODEL, "attention")) == expected
    converted = ba.convert(TimeSeriesTransformer(6, 8, depth=2, feedforward=8), ba.Softmax())
    assert list(choose_layers(converted, "attention")) == expected


def test_nothing_found_says_what_there_is() -> None:
    with pytest.raises(ValueError, match=r"where='decoder' matches none of the model's layers: , embedding"):
        choose_layers(MODEL, "decoder")
    with pytest.raises(ValueError, match="Linear has no attention layer that is known: name its layers"):
        choose_layers(nn.Linear(2, 2), "attention")
    with pytest.raises(ValueError, match="Sequential has no parameters"):
        choose_layers(nn.Sequential(nn.ReLU()), None)


def test_a_module_is_needed(unchecked: None) -> None:
    with pytest.raises(TypeError, match=r"model must be a torch.nn.Module, got Tensor"):
        choose_layers(torch.zeros(1), None)  # pyright: ignore[reportArgumentType]
