"""The C++ kernel: loading it, checking it once, calling it."""

from __future__ import annotations

import ctypes
import functools
import math
import warnings
from concurrent.futures import ThreadPoolExecutor
from ctypes import c_double, c_int64, c_uint64, c_void_p
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from bayesattn.kernels import build, chunked
from bayesattn.kernels.call import Call, Saved
from bayesattn.numerics.counter_noise import GENERATORS, NoiseGenerator, dropout_threshold
from bayesattn.numerics.precision import to_dtype_of_input
from bayesattn.posteriors.fused_form import NOISES, STATISTICS
from bayesattn.support.compilation import constant_when_compiled

TYPES = (torch.float32, torch.bfloat16, torch.float16)
"""What the kernel reads and writes, as `Type` of source/problem.h numbers it; noise, weights, sums and KL are float32."""
QUERY_TILE = 64
_MULTIPLE = 16  # the kernel's matrix products take features in multiples of this


_SIZES = [
    "batch",
    "heads",
    "key_heads",
    "queries",
    "keys",
    "features",
    "values",
    "samples",
    "query_tile",
    "threads",
    "type",
]


class _Problem(ctypes.Structure):
    """`Problem` of source/problem.h, field by field."""

    _fields_ = [
        *((name, c_int64) for name in _SIZES),
        *((name, c_void_p) for name in ["query", "key", "value"]),
        *((f"{name}_stride", c_int64 * 3) for name in ["query", "key", "value"]),
        ("scale", c_double),
        ("allowed", c_void_p),
        ("allowed_stride", c_int64 * 4),
        ("bias", c_void_p),
        ("bias_stride", c_int64 * 4),
        ("key_lengths", c_void_p),
        ("causal", c_int64),
        ("noise", c_int64),
        ("generator", c_int64),
        ("seed", c_uint64),
        ("noise_scale", c_void_p),
        ("noise_scale_stride", c_int64 * 3),
        ("dropout_threshold", c_int64),
        ("dropout_factor", c_double),
        ("statistics", c_int64),
        ("wants_total", c_int64),
        ("wants_exponential", c_int64),
        ("prior_logits", c_void_p),
        ("prior_total", c_void_p),
        ("prior_logits_stride", c_int64 * 3),
        ("prior_total_stride", c_int64 * 3),
        ("log_concentration", c_double),
        ("divergence_constant", c_double),
        *((name, c_void_p) for name in ["output", "log_total", "row_statistics", "grad_output", "grad_statistics"]),
        ("grad_output_stride", c_int64 * 3),
        *(
            (f"grad_{name}", c_void_p)
            for name in ["query", "key", "value", "noise_scale", "prior_logits", "prior_total"]
        ),
    ]


@dataclass(frozen=True)
class Library:
    """The loaded kernel, or None, and why."""

    functions: ctypes.CDLL | None
    message: str


@functools.cache
def library() -> Library:
    """The kernel, compiled if need be; the first failure is told as a warning, later ones by `explain`."""
    built = build.build(build.find_compiler(), build.cache_directory())
    loaded = Library(None, built.message)
    if built.path is not None:
        # in a thread of its own: the check needs real tensors, also while this thread traces with others (export, vmap, autocast)
        with ThreadPoolExecutor(1) as apart:
            loaded = apart.submit(_load, str(built.path), built.message).result()
    if loaded.functions is None and (built.is_news or built.path is not None):
        warnings.warn(
            f"bayesattn runs without its native kernel, more slowly and with the same results: {loaded.message}.",
            stacklevel=2,
        )
    elif built.is_news:
        warnings.warn(f"bayesattn: its native kernel was {built.message}.", stacklevel=2)
    return loaded


@constant_when_compiled
def is_available() -> bool:
    """Whether there is a compiled kernel; compiles it if need be."""
    return library().functions is not None


@constant_when_compiled
def how_it_was_made() -> str:
    """Where the compiled kernel is, or why there is none."""
    return library().message


def _load(path: str, message: str) -> Library:
    try:
        functions = ctypes.CDLL(path)
    except OSError as error:
        return Library(None, f"the compiled kernel cannot be loaded: {error}")
    for name in ("forward", "backward", "dropout", "problem_size"):
        getattr(functions, f"bayesattn_{name}").restype = c_int64
    if functions.bayesattn_problem_size() != ctypes.sizeof(_Problem):
        return Library(None, f"the compiled kernel {path} is of another version; delete it")
    for dtype, bound in ((torch.float32, 1e-4), (torch.bfloat16, 0.05)):
        difference = _difference_from_chunked(functions, dtype)
        if not difference < bound:
            return Library(
                None,
                f"the compiled kernel {path} fails its check (wrong by {difference:.2g} in {dtype}): report this, with CPU and compiler",
            )
    return Library(functions, message)


def _difference_from_chunked(functions: ctypes.CDLL, dtype: torch.dtype) -> float:
    """The largest difference from plain torch, of outputs and gradients of a small problem with masks, noise and KL sums."""
    grid = torch.linspace(-2.0, 2.0, 2 * 5 * 16).to(dtype)
    query, key = grid.sin().view(1, 2, 5, 16), (grid * 3).cos().repeat(14).view(1, 2, 70, 16)
    scale = torch.full((1, 2, 5), 0.3)
    logits = (key.float().sum(-1) / 4).contiguous()
    worst = 0.0
    for noise, statistics in (("log_exponential", "shares"), ("normal", "squares")):
        call = Call(
            query, key, key.sin(), None, None, None, torch.tensor([11]), scale, logits, logits.logsumexp(-1, keepdim=True).expand(1, 2, 5),
            0.25, True, noise, "philox", 0.1, statistics, True, True, -1.0, 1, "native",
        )  # fmt: skip
        ours, theirs = _forward(functions, call), _in_plain_torch(call)
        upstream = (query, torch.ones(4, 1, 2, 5), *theirs)
        pairs = [*zip(ours, theirs, strict=True)]
        pairs += zip(
            _backward(functions, Saved(*upstream), call), _backward_in_plain_torch(Saved(*upstream), call), strict=True
        )
        for one, other in pairs:
            worst = max(worst, float(((one.float() - other.float()).abs() / (1.0 + other.float().abs())).max()))
    return worst


def forward(call: Call) -> tuple[Tensor, Tensor, Tensor]:
    """See `operator.attention`."""
    return _forward(_functions(), call)


def backward(saved: Saved, call: Call) -> tuple[Tensor, ...]:
    """See `operator.attention_backward`."""
    return _backward(_functions(), saved, call)


def dropout(tensor: Tensor, seed: int, generator: NoiseGenerator, p: float) -> Tensor:
    """See `dropping.dropout`."""
    tensor = tensor.contiguous()
    dropped = torch.empty_like(tensor)
    _functions().bayesattn_dropout(
        c_void_p(tensor.data_ptr()),
        c_void_p(dropped.data_ptr()),
        c_int64(tensor.numel()),
        c_int64(TYPES.index(tensor.dtype)),
        c_int64(GENERATORS.index(generator)),
        c_uint64(seed % 2**64),
        c_int64(dropout_threshold(p)),
        c_double(1.0 / (1.0 - p)),
        c_int64(torch.get_num_threads()),
    )
    return dropped


def _functions() -> ctypes.CDLL:
    loaded = library()
    if loaded.functions is None:
        raise RuntimeError(f"The native kernel is not available: {loaded.message}. Use backend='auto'.")
    return loaded.functions


def _forward(functions: ctypes.CDLL, call: Call) -> tuple[Tensor, Tensor, Tensor]:
    padded = _pad(call)
    results = padded.empty_results()
    problem, _alive = _problem(padded)
    problem.output, problem.log_total, problem.row_statistics = (tensor.data_ptr() for tensor in results)
    if not (call.has_ordinary_bias() and functions.bayesattn_forward(ctypes.byref(problem))):
        return _in_plain_torch(call)
    return _narrow(results[0], call.value.shape[-1]), results[1], results[2]


def _backward(functions: ctypes.CDLL, saved: Saved, call: Call) -> tuple[Tensor, ...]:
    padded = _pad(call)
    gradients = _room_for_gradients(padded)
    problem, _alive = _problem(padded)
    grad_output, output = _whole_rows(_pad_last(saved.grad_output)), _pad_last(saved.output).contiguous()
    rest = [tensor.contiguous() for tensor in (saved.grad_statistics, saved.log_total, saved.statistics)]
    problem.grad_output, problem.grad_output_stride = grad_output.data_ptr(), (c_int64 * 3)(*grad_output.stride()[:3])
    problem.output = output.data_ptr()
    problem.grad_statistics, problem.log_total, problem.row_statistics = (tensor.data_ptr() for tensor in rest)
    for name, gradient in zip(
        ["query", "key", "value", "noise_scale", "prior_logits", "prior_total"], gradients, strict=True
    ):
        if gradient.numel():
            setattr(problem, f"grad_{name}", gradient.data_ptr())
    if not (call.has_ordinary_bias() and functions.bayesattn_backward(ctypes.byref(problem))):
        return _backward_in_plain_torch(saved, call)
    narrow = [_narrow(gradient, original.shape[-1]) for gradient, original in zip(gradients[:3], call[:3], strict=True)]
    return (*narrow, *gradients[3:])


def _in_plain_torch(call: Call) -> tuple[Tensor, Tensor, Tensor]:
    """Forward by `chunked`, which computes what is in 16 bits in float32."""
    output, log_total, statistics = chunked.forward(_in_float32(call))
    return output.to(call.value.dtype), log_total, statistics


def _backward_in_plain_torch(saved: Saved, call: Call) -> tuple[Tensor, ...]:
    wide = saved._replace(grad_output=saved.grad_output.float(), output=saved.output.float())
    *of_inputs, of_scale, of_logits, of_total = chunked.backward(wide, _in_float32(call))
    narrow = [to_dtype_of_input(gradient, call.query.dtype) for gradient in of_inputs]
    return (*narrow, of_scale, of_logits, of_total)


def _in_float32(call: Call) -> Call:
    return call._replace(query=call.query.float(), key=call.key.float(), value=call.value.float())


def _room_for_gradients(call: Call) -> tuple[Tensor, ...]:
    """As `zero_gradients`, but not cleared where the kernel writes all of it."""
    if call.key_lengths is not None:
        return call.zero_gradients()
    return (
        *(torch.empty_like(tensor, memory_format=torch.contiguous_format) for tensor in call[:3]),
        *call.zero_gradients()[3:],
    )


def _problem(call: Call) -> tuple[_Problem, list[Tensor]]:
    """The kernel's description of a call, and the tensors that it points to, which must stay alive."""
    batch, heads, queries, features = call.query.shape
    key_heads, keys = call.key.shape[1:3]
    problem = _Problem()
    for name, size in zip(
        _SIZES,
        (
            batch,
            heads,
            key_heads,
            queries,
            keys,
            features,
            call.value.shape[-1],
            call.samples,
            QUERY_TILE,
            torch.get_num_threads(),
            TYPES.index(call.query.dtype),
        ),
        strict=True,
    ):
        setattr(problem, name, size)
    alive: list[Tensor] = []

    def point(name: str, tensor: Tensor | None, strides: int = 3) -> None:
        if tensor is not None:
            alive.append(tensor)
            setattr(problem, name, tensor.data_ptr())
            setattr(problem, f"{name}_stride", (c_int64 * strides)(*tensor.stride()[:strides]))

    point("query", _whole_rows(call.query))
    point("key", _whole_rows(call.key))
    point("value", _whole_rows(call.value))
    for name in ("allowed", "bias"):
        mask = getattr(call, name)
        point(name, None if mask is None else mask.expand(batch, heads, queries, keys), 4)
    for name in ("noise_scale", "prior_logits", "prior_total"):
        point(name, getattr(call, name))
    if call.key_lengths is not None:
        alive.append(call.key_lengths.to(torch.int64).contiguous())
        problem.key_lengths = alive[-1].data_ptr()
    problem.scale, problem.causal, problem.log_concentration = call.scale, call.causal, call.log_concentration
    if call.statistics == "gamma":
        problem.divergence_constant = math.lgamma(math.exp(call.log_concentration) + 1.0) - call.log_concentration - 1.0
    problem.noise, problem.generator = NOISES.index(call.noise), GENERATORS.index(call.generator)  # pyright: ignore[reportArgumentType]
    problem.seed = 0 if call.seed is None else int(call.seed) % 2**64
    problem.dropout_threshold, problem.dropout_factor = dropout_threshold(call.dropout_p), 1.0 / (1.0 - call.dropout_p)
    problem.statistics = STATISTICS.index(call.statistics)  # pyright: ignore[reportArgumentType]
    problem.wants_total, problem.wants_exponential = call.wants_total, call.wants_exponentials
    return problem, alive


def _pad(call: Call) -> Call:
    return call._replace(query=_pad_last(call.query), key=_pad_last(call.key), value=_pad_last(call.value))


def _pad_last(tensor: Tensor) -> Tensor:
    missing = -tensor.shape[-1] % _MULTIPLE
    return F.pad(tensor, (0, missing)) if missing else tensor


def _narrow(tensor: Tensor, size: int) -> Tensor:
    return tensor if tensor.shape[-1] == size else tensor[..., :size].contiguous()


def _whole_rows(tensor: Tensor) -> Tensor:
    """With its last dimension contiguous; the others may have any stride, as after a transposition of heads and positions.

    Of 16 bits they are even, since the kernel reads pairs.
    """
    *others, last = tensor.stride()
    in_pairs = tensor.element_size() == 4 or not any(stride % 2 for stride in others)
    return tensor if last == 1 and in_pairs else tensor.contiguous()
