"""Products and attention of several networks as one are those of each."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bayesattn.support.vectorised import Grouped, without_loops

NETWORKS = 3


def _in_one(function: Any, in_dims: Any, *tensors: Any) -> Tensor:
    with without_loops(), Grouped():
        return torch.vmap(function, in_dims=in_dims)(*tensors)


@pytest.mark.parametrize("of_input", [None, 0, 1])
@pytest.mark.parametrize("of_weight", [None, 0])
@pytest.mark.parametrize("bias", [False, True])
def test_linear(of_input: int | None, of_weight: int | None, bias: bool) -> None:
    if of_input is None and of_weight is None:
        return
    x = torch.randn(4, 5, 6, dtype=torch.double)
    x = x if of_input is None else torch.randn(NETWORKS, 4, 5, 6, dtype=torch.double).movedim(0, of_input)
    shape = (7, 6) if of_weight is None else (NETWORKS, 7, 6)
    weight = torch.randn(shape, dtype=torch.double, requires_grad=True)
    b = torch.randn(shape[:-1], dtype=torch.double, requires_grad=True) if bias else None
    made = _in_one(F.linear, (of_input, of_weight, of_weight if bias else None), x, weight, b)
    each = [
        F.linear(
            x if of_input is None else x.select(of_input, i),
            weight if of_weight is None else weight[i],
            None if b is None else b if of_weight is None else b[i],
        )
        for i in range(NETWORKS)
    ]
    torch.testing.assert_close(made, torch.stack(each))
    weights = torch.randn_like(made)
    wanted = [weight, *([] if b is None else [b])]
    for mine, theirs in zip(
        torch.autograd.grad((made * weights).sum(), wanted),
        torch.autograd.grad((torch.stack(each) * weights).sum(), wanted),
        strict=True,
    ):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("mask", [None, "queries", "batch", "own"])
def test_attention(mask: str | None) -> None:
    q, k, v = (torch.randn(NETWORKS, 2, 4, 5, 8, requires_grad=True) for _ in range(3))
    masks = {"queries": (5, 5), "batch": (2, 1, 1, 5), "own": (NETWORKS, 2, 1, 5, 5)}
    given = None if mask is None else torch.rand(masks[mask]) < 0.7
    if given is not None:
        given[..., 0] = True
    of_mask = 0 if mask == "own" else None
    made = _in_one(F.scaled_dot_product_attention, (0, 0, 0, of_mask), q, k, v, given)
    each = torch.stack(
        [
            F.scaled_dot_product_attention(q[i], k[i], v[i], given[i] if given is not None and of_mask == 0 else given)
            for i in range(NETWORKS)
        ]
    )
    torch.testing.assert_close(made, each)
    gradients = [torch.autograd.grad(out.square().sum(), [q, k, v]) for out in (made, each)]
    torch.testing.assert_close(gradients[0], gradients[1])


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("masked", ["", "padding", "bool", "heads", "causal", "both", "weights", "bias_kv", "cross"])
def test_multi_head_attention(masked: str, batch_first: bool) -> None:
    options = {"add_bias_kv": True} if masked == "bias_kv" else {}
    layers = [nn.MultiheadAttention(8, 2, batch_first=batch_first, **options) for _ in range(NETWORKS)]
    stacked = {
        name: torch.stack([dict(each.named_parameters())[name] for each in layers])
        for name, _ in layers[0].named_parameters()
    }
    x, memory = torch.randn(3, 5, 8), torch.randn(3, 5, 8)
    if not batch_first:
        x, memory = x.transpose(0, 1), memory.transpose(0, 1)
    padding = torch.tensor([[0, 0, 0, 0, 1], [0, 0, 1, 1, 1], [0, 0, 0, 0, 0]]).bool()
    causal = torch.ones(5, 5).triu(1).bool()
    arguments: dict[str, Any] = {"need_weights": masked == "weights"}
    if masked in ("padding", "both"):
        arguments["key_padding_mask"] = padding
    if masked in ("bool", "both"):
        arguments["attn_mask"] = causal
    if masked == "heads":
        arguments["attn_mask"] = torch.randn(6, 5, 5)
    if masked == "causal":
        arguments |= {"attn_mask": causal, "is_causal": True}

    def run(layer: Any) -> Any:
        outputs = layer(x, memory if masked == "cross" else x, memory if masked == "cross" else x, **arguments)
        return outputs if masked == "weights" else outputs[0]

    made = _in_one(
        lambda values: run(lambda *a, **k: torch.func.functional_call(layers[0], values, a, k)), (0,), stacked
    )
    each = [run(layer) for layer in layers]
    if masked == "weights":
        torch.testing.assert_close(made[1], torch.stack([weights for _, weights in each]))
        made, each = made[0], [output for output, _ in each]
    torch.testing.assert_close(made, torch.stack(each))


def test_what_vmap_would_loop_over_is_an_error_and_then_a_loop_again() -> None:
    q = torch.randn(NETWORKS, 1, 2, 5, 8)
    attend = torch.vmap(F.scaled_dot_product_attention)
    with without_loops(), pytest.raises(RuntimeError, match="fallback"):
        attend(q, q, q)
    with pytest.warns(UserWarning, match="batching rule"):
        attend(q, q, q)
