"""The objective: the negative ELBO of a batch."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, Literal
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from bayesattn.numerics.gradients import shared_norms
from bayesattn.scopes.recording import GlobalTerm, Latents, LocalTerm
from bayesattn.support import checks
from bayesattn.support.annotations import Float

KLReduction = Literal["light", "sum", "mean", "per_query", "per_token"]
_REDUCTIONS = ("light", "sum", "mean", "per_query", "per_token")
LIGHT = 0.01
"""Nats that a nat of KL for each attention weight counts. At 1, a pretrained encoder stops learning; at 0.01 it learns as it does
without a KL (table kl-weight)."""
DWARFED = 3.0
"""From how many times the likelihood's gradient on the KL's is warned of. Where it was five, MiniLM did not learn CoLA."""

_ratios: WeakKeyDictionary[Any, float] = WeakKeyDictionary()
"""First posterior of a model → by how much its KL's gradient at weight 1 surpassed the likelihood's in the first step."""


@dataclass(frozen=True)
class Elbo:
    """The loss and, apart, its parts: loss = nll + kl_weight · (local_kl + global_kl).

    All are means over the batch; `global_kl` is already divided by the size of the data set.
    """

    loss: Float[Tensor, ""]
    nll: Float[Tensor, ""]
    local_kl: Float[Tensor, ""]
    global_kl: Float[Tensor, ""]
    kl_weight: float

    def backward(self) -> None:
        """`self.loss.backward()`."""
        self.loss.backward()


def elbo(
    nll: Float[Tensor, "batch ..."],
    latents: Latents | None,
    *,
    dataset_size: int | None = None,
    kl_weight: float = 1.0,
    kl_reduction: KLReduction = "light",
    compare_gradients: bool = True,
) -> Elbo:
    """The negative ELBO of a batch, for each example: NLL + kl_weight · (local KL + global KL / dataset_size).

    By default the KL of attention weights is taken lightly, which trains a pretrained model as well as no KL does. The bound itself
    is `kl_reduction="sum"`.

    Args:
        nll: negative log-likelihood of each example, that is `reduction="none"`. Further dimensions (the tokens of a
            sequence) are summed: padded positions must hold 0, as `ignore_index` gives.
        latents: what `record()` collected. None for a deterministic model, whose loss is the NLL.
        dataset_size: number of training examples; needed if there are global terms.
        kl_weight: factor of the KL, at least 0, from a schedule. 1 is all of it.
        kl_reduction: how the local KL of one example is formed from its elements (head, query, key) and layers. "light" (default) is
            a hundredth of "mean" for attention weights, and the sum for other latents: alignments, bottlenecks, heads. "sum" is the
            ELBO. "mean" averages over elements and layers, as the reference code of BAM does: its KL is smaller by heads · queries ·
            keys · layers. "per_query" averages over the rows (head, query) and the layers, "per_token" averages over query positions
            and sums heads and layers. All leave masked pairs and padded queries out.
        compare_gradients: where the KL counts more than by default, compare its gradient with the likelihood's in the first step of
            a model, at the price of one more backward pass, and warn if it is several times as large.

    >>> import torch, bayesattn as ba
    >>> attention = ba.nn.MultiheadAttention(16, 2, batch_first=True, posterior=ba.Weibull(k=10.0))
    >>> x = torch.randn(3, 5, 16)
    >>> with ba.record() as latents:
    ...     output, _ = attention(x, x, x)
    >>> loss = ba.elbo(output.square().mean((1, 2)), latents)
    >>> loss.backward()
    """
    checks.one_of("kl_reduction", kl_reduction, _REDUCTIONS)
    checks.not_negative("kl_weight", kl_weight, "A negative one would drive the posterior away from its prior.")
    if nll.dim() == 0:
        raise ValueError("nll must hold one value for each example, got a scalar: compute it with reduction='none'.")
    per_example = nll.flatten(1).sum(1) if nll.dim() > 1 else nll
    mean_nll = per_example.mean()
    local_kl, global_kl = torch.zeros_like(mean_nll), torch.zeros_like(mean_nll)
    if latents is not None:
        local_terms, global_terms = latents.local_terms, latents.global_terms
        _check_recorded([*local_terms, *global_terms], mean_nll)
        if local_terms:
            summed = latents.local_kl  # also checks that all terms are of one batch
            reduced = summed if kl_reduction == "sum" else _reduce(local_terms, kl_reduction)
            if reduced.shape != per_example.shape:
                raise ValueError(
                    f"nll has {per_example.shape[0]} examples, the recorded KL has {reduced.shape[0]}: both must come from the same batch."
                )
            local_kl = reduced.mean()
        if global_terms:
            if dataset_size is None:
                raise ValueError(
                    "The model has latents of the whole data set: pass dataset_size=, the number of training examples."
                )
            global_kl = latents.global_kl / checks.whole("dataset_size", dataset_size)
        if compare_gradients and (kl_reduction != "light" or kl_weight > 1):
            warn_if_dwarfed(mean_nll, local_kl, kl_weight, latents)
    loss = mean_nll + kl_weight * (local_kl + global_kl)
    return Elbo(loss, mean_nll.detach(), local_kl.detach(), global_kl.detach(), float(kl_weight))


def warn_if_dwarfed(nll: Tensor, kl: Tensor, kl_weight: float, latents: Latents) -> None:
    """Once for a model: if the gradient of the KL of its attention weights is several times the likelihood's."""
    sources = [term.source for term in latents.local_terms if term.are_attention_weights]
    if not sources or not (nll.requires_grad and kl.requires_grad) or torch.compiler.is_compiling():
        return
    first = sources[0]
    if first not in _ratios:
        norms = shared_norms(nll, kl)
        _ratios[first] = 0.0 if norms is None else norms[1] / norms[0]
    ratio = kl_weight * _ratios[first]
    if ratio > DWARFED:
        _ratios[first] = 0.0
        warnings.warn(
            f"The KL's gradient is {ratio:.0f} times the likelihood's in the first step: the model would learn its prior and not its "
            "task. Use the default kl_reduction='light', or a smaller kl_weight; compare_gradients=False if this is what you want.",
            stacklevel=3,
        )


def _check_recorded(terms: list[LocalTerm | GlobalTerm], mean_nll: Tensor) -> None:
    if not terms:
        raise ValueError(
            "latents is empty: nothing Bayesian ran inside `with ba.record() as latents:`. Convert the model (ba.convert), or pass "
            "latents=None for a deterministic one."
        )
    if mean_nll.requires_grad and not all(term.with_gradient for term in terms):
        raise ValueError(
            "The nll has a gradient, but a KL term was recorded with gradients off, so it would not be trained. "
            "With gradient checkpointing, pass use_reentrant=False; else look for torch.no_grad() around a layer."
        )


def _reduce(terms: list[LocalTerm], reduction: str) -> Tensor:
    if reduction == "light":
        weights = [term for term in terms if term.are_attention_weights]
        others = [term.kl for term in terms if not term.are_attention_weights]
        return torch.stack([*others, *([LIGHT * _reduce(weights, "mean")] if weights else [])]).sum(0)
    if reduction == "per_token":
        return torch.stack([term.kl / term.tokens.clamp_min(1) for term in terms]).sum(0)
    counts = [term.elements if reduction == "mean" else term.rows for term in terms]
    return torch.stack([term.kl / count.clamp_min(1) for term, count in zip(terms, counts, strict=True)]).mean(0)
