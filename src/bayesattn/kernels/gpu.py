"""Attention on a GPU by the Triton kernels of gpu_kernels.py: whether they can be used, and calling them."""

from __future__ import annotations

import functools
import importlib.util
import os
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from bayesattn.kernels.call import Call, Saved
from bayesattn.kernels.form import NOISES, STATISTICS, FusedForm
from bayesattn.kernels.noise import BLOCK, GENERATORS, dropout_threshold

ROWS = 32
"""Queries of a tile."""
OPTIONS = {"num_stages": 1}
"""For Triton's compiler: no tiles loaded ahead, which would take three times the shared memory."""
SHARED_BYTES = {64: 64 << 10, 128: 112 << 10}
"""What the kernels take of a GPU's shared memory at most, by the size of a head."""


def obstacle(query: Tensor, value: Tensor, form: FusedForm) -> str | None:
    """Why these tensors cannot be computed by Triton, or None."""
    if query.dtype == torch.float64:
        return "triton computes in float32, these tensors are float64"
    if not _is_installed():
        return "triton is not installed (pip install 'bayesattn[triton]')"
    if query.device.type != "cuda" and not _is_interpreted():
        return f"triton runs on a GPU, these tensors are on {query.device.type}"
    if form.noise == "gamma":
        return "triton has no Gamma draws"
    largest = max(query.shape[-1], value.shape[-1])
    wanted = next((taken for size, taken in SHARED_BYTES.items() if largest <= size), None)
    if wanted is None or (query.device.type == "cuda" and wanted > _shared_bytes(query.device)):
        return f"triton's tiles of heads of {largest} features do not fit into the GPU's shared memory"
    return None


@functools.cache
def _is_installed() -> bool:
    return importlib.util.find_spec("triton") is not None


def _shared_bytes(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).shared_memory_per_block_optin


def _is_interpreted() -> bool:
    """Whether Triton interprets its kernels on the CPU: slow, to see that they are right."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def forward(call: Call) -> tuple[Tensor, Tensor, Tensor]:
    """See `operator.attention`."""
    from bayesattn.kernels import gpu_kernels

    results = call.empty_results()
    batch, heads, queries, _ = call.query.shape
    if results[1].numel():
        tensors, others = _arguments(call)
        grid = (-(-queries // ROWS), call.samples * batch * heads)
        with _device_of(call.query):
            gpu_kernels.forward_kernel[grid](*tensors, *results, **others)
    return results


def backward(saved: Saved, call: Call) -> tuple[Tensor, ...]:
    """See `operator.attention_backward`."""
    from bayesattn.kernels import gpu_kernels

    gradients = call.zero_gradients()
    grad_query, grad_key, grad_value, grad_noise_scale, grad_prior_logits, grad_prior_total = gradients
    batch, heads, queries, _ = call.query.shape
    key_heads, keys = call.key.shape[1:3]
    if not (grad_query.numel() and grad_key.numel()):
        return gradients
    tensors, others = _arguments(call)
    grad_output = saved.grad_output.contiguous()
    passed = (
        grad_output,
        (grad_output * saved.output).sum(-1),
        saved.log_total.contiguous(),
        saved.statistics.contiguous(),
        saved.grad_statistics.contiguous(),
    )
    with _device_of(call.query):
        gpu_kernels.backward_query_kernel[(-(-queries // ROWS), batch * heads)](
            *tensors, *passed, grad_query, grad_noise_scale, grad_prior_total, **others
        )
        gpu_kernels.backward_key_kernel[(-(-keys // BLOCK), batch * key_heads)](
            *tensors, *passed, grad_key, grad_value, grad_prior_logits, **others
        )
    return gradients


def _arguments(call: Call) -> tuple[list[Tensor], dict[str, Any]]:
    """The tensors that all kernels begin with, and what else they take, by name. The query stands where there is no tensor."""
    batch, heads, queries, features = call.query.shape
    keys, values = call.value.shape[2:]
    query, key, value = (
        tensor if tensor.stride(-1) == 1 else tensor.contiguous() for tensor in (call.query, call.key, call.value)
    )
    pairs = [None if mask is None else mask.expand(batch, heads, queries, keys) for mask in (call.allowed, call.bias)]
    if pairs[0] is not None:
        pairs[0] = pairs[0].view(torch.uint8)
    others = (call.key_lengths, call.noise_scale, call.prior_logits, call.prior_total)
    tensors = [query, key, value, *pairs, *(None if other is None else other.contiguous() for other in others)]
    arguments: dict[str, Any] = {}
    for name, tensor, letters in zip(
        ("query", "key", "value", "allowed", "bias"), tensors, ("bhr", "bhr", "bhr", "bhrc", "bhrc"), strict=False
    ):
        for place, letter in enumerate(letters):
            arguments[f"{name}_{letter}"] = 0 if tensor is None else tensor.stride(place)
    arguments |= {
        "batch": batch,
        "heads": heads,
        "groups": call.groups,
        "queries": queries,
        "keys": keys,
        "seed": 0 if call.seed is None else int(call.seed),
        "scale": call.scale,
        "dropout_threshold": dropout_threshold(call.dropout_p),
        "dropout_factor": 1.0 / (1.0 - call.dropout_p),
        "log_concentration": call.log_concentration,
        "has_allowed": call.allowed is not None,
        "has_bias": call.bias is not None,
        "has_lengths": call.key_lengths is not None,
        "has_prior": call.prior_logits is not None,
        "causal": call.causal,
        "noise": NOISES.index(call.noise),  # pyright: ignore[reportArgumentType]
        "generator": GENERATORS.index(call.generator),  # pyright: ignore[reportArgumentType]
        "dropout": call.dropout_p > 0.0,
        "statistics": STATISTICS.index(call.statistics),  # pyright: ignore[reportArgumentType]
        "wants_total": call.wants_total,
        "wants_exponentials": call.wants_exponentials,
        "features": features,
        "features_padded": _padded(features),
        "values": values,
        "values_padded": _padded(values),
        "rows": ROWS,
        **OPTIONS,
    }
    return [query if tensor is None else tensor for tensor in tensors], arguments


def _device_of(tensor: Tensor) -> AbstractContextManager[Any]:
    """Triton launches on the current GPU, which need not be the tensors'."""
    return torch.cuda.device(tensor.device) if tensor.device.type == "cuda" else nullcontext()


def _padded(size: int) -> int:
    """Triton's tiles have powers of two, its products at least 16."""
    return max(16, 1 << (size - 1).bit_length())
