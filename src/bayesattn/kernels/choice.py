"""Which backend computes a call of attention: the one place where that is decided."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch._C._functorch import TransformType, get_interpreter_stack
from torch.autograd import forward_ad

from bayesattn.kernels import gpu, native
from bayesattn.numerics.counter_noise import GENERATORS, NoiseGenerator
from bayesattn.posteriors import Posterior
from bayesattn.scopes.variable import ScopeVariable
from bayesattn.support import checks

Backend = Literal["auto", "native", "triton", "chunked", "reference"]
BACKENDS = ("auto", "native", "triton", "chunked", "reference")

NATIVE_FROM = 1 << 14
"""Pairs (batch · heads · query · key) from which native is worth its call: three quarters of reference's time there, as long at 2^11."""
NATIVE_WITHOUT_GRADIENTS_FROM = 1 << 11
"""The same where gradients are off: a quarter of reference's time there, as for one query, eight heads and 256 keys."""
CHUNKED_FROM = 1 << 20
"""Pairs from which, without native, computing twice is better than storing: as fast as reference there, faster beyond."""


@dataclass(frozen=True)
class Choice:
    """A backend, and why it was chosen.

    >>> print(Choice("reference", "small"))
    reference: small
    """

    backend: str
    reason: str

    def __str__(self) -> str:
        return f"{self.backend}: {self.reason}"


_backend: ScopeVariable[Backend] = ScopeVariable("kernels.use()", "auto")
_noise: ScopeVariable[NoiseGenerator] = ScopeVariable("kernels.use()", "philox")


@contextmanager
def use(backend: Backend | None = None, noise: NoiseGenerator | None = None) -> Iterator[None]:
    """Choose the backend, or the noise's generator, of every attention in this block that is not told otherwise.

    >>> import torch, bayesattn as ba
    >>> q = torch.randn(1, 2, 8, 16)
    >>> with ba.kernels.use(backend="chunked"):
    ...     ba.kernels.explain(q, q, q, ba.Weibull()).backend
    'chunked'
    """
    chosen: Backend = _backend.get() if backend is None else checks.one_of("backend", backend, BACKENDS)
    generator: NoiseGenerator = _noise.get() if noise is None else checks.one_of("noise", noise, GENERATORS)
    with _backend.held(chosen), _noise.held(generator):
        yield


def noise_generator() -> NoiseGenerator:
    """The generator that `use(noise=...)` set."""
    return _noise.get() if torch.compiler.is_compiling() else _noise.in_context.get()


def choose(
    backend: Backend | None,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    posterior: Posterior,
    *,
    attn_mask: Tensor | None = None,
    need_weights: bool = False,
    softcap: float | None = None,
    dropout_p: float = 0.0,
) -> Choice:
    """The backend for this call. The posterior has a fused form unless it is `reference`.

    Args:
        backend: what the caller asked for, None for what `use` set.
        query, key, value: [batch, heads, length, features].
        posterior: a `Posterior`.
        attn_mask, need_weights, softcap, dropout_p: as in `attend`.
    """
    if backend is None:
        wanted = _backend.get() if torch.compiler.is_compiling() else _backend.in_context.get()
    else:
        wanted = checks.one_of("backend", backend, BACKENDS)
    if wanted == "reference":
        return Choice("reference", "asked for")
    batch, heads, queries, _ = query.shape
    pairs = batch * heads * queries * key.shape[2]
    # no text while compiling: it would tie the compiled code to this size
    size = "" if torch.compiler.is_compiling() else f"{pairs:,} pairs of query and key"
    if pairs == 0:
        return Choice("reference", "there is no pair of query and key")
    if wanted == "auto" and pairs < (NATIVE_FROM if torch.is_grad_enabled() else NATIVE_WITHOUT_GRADIENTS_FROM):
        return Choice("reference", f"{size} are few: plain torch is as fast")
    obstacle = None
    if need_weights:
        obstacle = "the weights themselves are wanted (need_weights)"
    elif attn_mask is not None and attn_mask.requires_grad:
        obstacle = "attn_mask has a gradient"
    elif softcap is not None:
        obstacle = "the kernels have no soft cap (softcap)"
    elif (derivative := _derivative_without_rule()) is not None:
        obstacle = f"the kernels have no rule for {derivative}"
    elif dropout_p and not posterior.counter_noise:
        obstacle = f"the dropout of {type(posterior).__name__} is torch's own"
    elif not posterior.has_fused_form:
        obstacle = f"this {type(posterior).__name__} has no fused form"
    but = "" if wanted == "auto" else f"{wanted} was asked for, but "
    if obstacle is not None:
        return Choice("reference", but + obstacle)
    if wanted == "chunked":
        return Choice("chunked", "asked for")
    kernel = ("triton" if query.device.type == "cuda" else "native") if wanted == "auto" else wanted
    unavailable = gpu.obstacle(query, value) if kernel == "triton" else _native_is_unavailable(query)
    if unavailable is None:
        remark = native.how_it_was_made() if kernel == "native" else "compiled by Triton"
        return Choice(kernel, "asked for" if but else f"{size}; {remark}")
    if pairs < CHUNKED_FROM:
        return Choice("reference", f"{but}{unavailable}; {size} fit in memory")
    return Choice("chunked", f"{but}{unavailable}; {size}")


def explain(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    posterior: Posterior,
    attn_mask: Tensor | None = None,
    *,
    backend: Backend | None = None,
    need_weights: bool = False,
    softcap: float | None = None,
    dropout_p: float = 0.0,
    **others: Any,
) -> Choice:
    """Which backend `attend` takes for these arguments, and why. Its other arguments may be given too; they do not matter.

    >>> import torch, bayesattn as ba
    >>> q = torch.randn(2, 8, 1024, 64)
    >>> print(ba.kernels.explain(q, q, q, ba.Weibull(), need_weights=True))
    reference: the weights themselves are wanted (need_weights)
    """
    if query.dim() == 3:
        query, key = query.unsqueeze(1), key.unsqueeze(1)
    return choose(
        backend,
        query,
        key,
        value,
        posterior,
        attn_mask=attn_mask,
        need_weights=need_weights,
        softcap=softcap,
        dropout_p=dropout_p,
    )


def _derivative_without_rule() -> str | None:
    """What is being differentiated in another way than by plain reverse mode, which is all that the operator has rules for."""
    if forward_ad._current_level >= 0:
        return "forward-mode derivatives (jvp, dual tensors)"
    if torch.compiler.is_compiling():
        return None  # torch.compile has its own way through torch.func
    transforms = [level.key() for level in get_interpreter_stack() or ()]
    if TransformType.Grad in transforms:
        return "derivatives by torch.func (grad, vjp, jacrev)"
    if transforms and torch.is_grad_enabled():
        return "gradients inside torch.vmap"
    return None


def _native_is_unavailable(query: Tensor) -> str | None:
    if query.device.type != "cpu":
        return f"native runs on the CPU, these tensors are on {query.device.type}"
    if query.dtype == torch.float64:
        return "native computes in float32, these tensors are float64"
    return None if native.is_available() else f"native is not there: {native.how_it_was_made()}"
