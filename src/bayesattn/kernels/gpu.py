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
from bayesattn.posteriors.fused_form import NOISES, STATISTICS

ROWS = 32
"""Queries of a tile."""
FEW_ROWS = 16
"""The same where there are no more queries than these: the fewest that Triton's products take."""
PROGRAMS, LEAST_BLOCKS = 4, 2
"""Programs for each of the GPU's processors that keep it busy, and how many blocks of keys are worth a program."""
INTERPRETED = 8
"""As many processors does the interpreter say it has."""
OPTIONS = {"num_stages": 1}
"""For Triton's compiler: no tiles loaded ahead, which would take three times the shared memory."""
SHARED_BYTES = {64: 64 << 10, 128: 112 << 10}
"""What the kernels take of a GPU's shared memory at most, by the size of a head."""


def obstacle(query: Tensor, value: Tensor) -> str | None:
    """Why these tensors cannot be computed by Triton, or None."""
    if query.dtype == torch.float64:
        return "triton computes in float32, these tensors are float64"
    if not _is_installed():
        return "triton is not installed (pip install 'bayesattn[triton]')"
    if query.device.type != "cuda" and not _is_interpreted():
        return f"triton runs on a GPU, these tensors are on {query.device.type}"
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
    if not log_total.numel():
        return results
    rows, parts = ROWS, _parts(call)
    arguments = _arguments(call)
    score_total = None
    if parts > 1:
        rows = FEW_ROWS
        output, log_total = (result.new_empty(parts, *result.shape) for result in (output, log_total))
        if call.noise == "gamma":  # the total of a row is the log total without noise
            without = call._replace(noise="none", wants_total=False, dropout_p=0.0, samples=1)
            totals = forward(without)[1]
            score_total = totals.masked_fill(totals == float("inf"), 0.0)
            statistics[0] = score_total
            arguments["wants_total"] = False
    blocks = -(-call.key.shape[2] // BLOCK)
    arguments.update(
        output=output,
        log_total=log_total,
        row_statistics=statistics,
        score_total=call.query if score_total is None else score_total,
        total_is_given=score_total is not None,
        blocks=-(-blocks // parts),
        rows=rows,
    )
    with _device_of(call.query):
        gpu_kernels.forward_kernel[-(-queries // rows) * parts, call.samples * batch * heads](**arguments)
    return results if parts == 1 else (*_merged(output, log_total), statistics)


def _parts(call: Call) -> int:
    """Into how many parts the keys are shared out, so that a few queries (decoding) keep a whole GPU busy.

    Only where the output is all that is wanted: sums over a row are not merged.
    """
    batch, heads, queries, _ = call.query.shape
    wants_sums = call.statistics != "nothing" or call.wants_exponentials or (call.wants_total and call.noise != "gamma")
    if wants_sums or queries > FEW_ROWS:
        return 1
    device = call.query.device
    processors = (
        torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else INTERPRETED
    )
    wanted = PROGRAMS * processors // (call.samples * batch * heads)
    return max(1, min(wanted, call.key.shape[2] // (LEAST_BLOCKS * BLOCK)))


def _merged(output: Tensor, log_total: Tensor) -> tuple[Tensor, Tensor]:
    """The output and log total of all keys from those of their parts, in the first dimension."""
    log_total = log_total.masked_fill(log_total == float("inf"), float("-inf"))  # a part in which all is masked
    whole = log_total.logsumexp(0)
    is_empty = whole == float("-inf")
    shares = (log_total - whole.masked_fill(is_empty, 0.0)).exp().unsqueeze(-1)
    return (shares * output).sum(0), whole.masked_fill(is_empty, float("inf"))


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
            **arguments,
            grad_key=grad_key,
            grad_value=grad_value,
            grad_prior_logits=grad_prior_logits,
            grad_noise_scale=grad_noise_scale,
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
