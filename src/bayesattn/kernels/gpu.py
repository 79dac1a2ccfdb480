"""Attention on a GPU by the Triton kernels of gpu_kernels.py: whether they can be used, and calling them."""

from __future__ import annotations

import functools
import importlib.util
import os
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from bayesattn.kernels import chunked
from bayesattn.kernels.call import Call, Saved
from bayesattn.numerics.counter_noise import BLOCK, GENERATORS, dropout_threshold
from bayesattn.posteriors.fused_form import NOISES, STATISTICS, NoiseForm

ROWS = 32
"""Queries of a tile."""
OPTIONS = {"num_stages": 1}
"""For Triton's compiler: no tiles loaded ahead, which would take three times the shared memory."""
SHARED_BYTES = {64: 64 << 10, 128: 112 << 10}
"""What the kernels take of a GPU's shared memory at most, by the size of a head."""


def obstacle(query: Tensor, value: Tensor, noise: NoiseForm) -> str | None:
    """Why these tensors cannot be computed by Triton, or None."""
    if query.dtype == torch.float64:
        return "triton computes in float32, these tensors are float64"
    if not _is_installed():
        return "triton is not installed (pip install 'bayesattn[triton]')"
    if query.device.type != "cuda" and not _is_interpreted():
        return f"triton runs on a GPU, these tensors are on {query.device.type}"
    if noise == "gamma":
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

    if not call.is_ordinary():
        return chunked.forward(call)
    output, log_total, statistics = results = call.empty_results()
    batch, heads, queries, _ = call.query.shape
    if log_total.numel():
        arguments = _arguments(call)
        arguments.update(output=output, log_total=log_total, row_statistics=statistics)
        with _device_of(call.query):
            gpu_kernels.forward_kernel[-(-queries // ROWS), call.samples * batch * heads](**arguments)
    return results


def backward(saved: Saved, call: Call) -> tuple[Tensor, ...]:
    """See `operator.attention_backward`."""
    from bayesattn.kernels import gpu_kernels

    if not call.is_ordinary(saved.grad_output, saved.grad_statistics):
        return chunked.backward(saved, call)
    gradients = call.zero_gradients()
    grad_query, grad_key, grad_value, grad_noise_scale, grad_prior_logits, grad_prior_total = gradients
    batch, heads, queries, _ = call.query.shape
    key_heads, keys = call.key.shape[1:3]
    if not (grad_query.numel() and grad_key.numel()):
        return gradients
    grad_output = saved.grad_output.contiguous()
    arguments = _arguments(call)
    arguments.update(
        grad_output=grad_output,
        delta=(grad_output * saved.output).sum(-1),
        log_total=saved.log_total.contiguous(),
        row_statistics=saved.statistics.contiguous(),
        grad_statistics=saved.grad_statistics.contiguous(),
    )
    with _device_of(call.query):
        gpu_kernels.backward_query_kernel[-(-queries // ROWS), batch * heads](
            **arguments, grad_query=grad_query, grad_noise_scale=grad_noise_scale, grad_prior_total=grad_prior_total
        )
        gpu_kernels.backward_key_kernel[-(-keys // BLOCK), batch * key_heads](
            **arguments, grad_key=grad_key, grad_value=grad_value, grad_prior_logits=grad_prior_logits
        )
    return gradients


def _arguments(call: Call) -> dict[str, Any]:
    """What all kernels take, by name. The query stands where there is no tensor."""
    batch, heads, queries, features = call.query.shape
    keys, values = call.value.shape[2:]
    tensors: dict[str, Tensor | None] = {
        name: tensor if tensor.stride(-1) == 1 else tensor.contiguous()
        for name, tensor in (("query", call.query), ("key", call.key), ("value", call.value))
    }
    for name, mask in (("allowed", call.allowed), ("bias", call.bias)):
        tensors[name] = None if mask is None else mask.expand(batch, heads, queries, keys)
    arguments: dict[str, Any] = {}
    for (name, tensor), letters in zip(tensors.items(), ("bhr", "bhr", "bhr", "bhrc", "bhrc"), strict=True):
        for place, letter in enumerate(letters):
            arguments[f"{name}_{letter}"] = 0 if tensor is None else tensor.stride(place)
    if tensors["allowed"] is not None:
        tensors["allowed"] = tensors["allowed"].view(torch.uint8)
    for name in ("key_lengths", "noise_scale", "prior_logits", "prior_total"):
        tensor = getattr(call, name)
        tensors[name] = None if tensor is None else tensor.contiguous()
    arguments |= {name: call.query if tensor is None else tensor for name, tensor in tensors.items()}
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
    return arguments


def _device_of(tensor: Tensor) -> AbstractContextManager[Any]:
    """Triton launches on the current GPU, which need not be the tensors'."""
    return torch.cuda.device(tensor.device) if tensor.device.type == "cuda" else nullcontext()


def _padded(size: int) -> int:
    """Triton's tiles have powers of two, its products at least 16."""
    return max(16, 1 << (size - 1).bit_length())
