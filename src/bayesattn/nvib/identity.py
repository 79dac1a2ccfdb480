"""Pretrained attention as NVIB: start as the model that it was, then turn regularisation up without training."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn

from bayesattn.nvib.layer import NVIB
from bayesattn.nvib.moments import Moments
from bayesattn.nvib.projected import ReadsLatent


def identity(
    model: nn.Module,
    batches: Iterable[Any] | None = None,
    *,
    tau_mu: float = 1.0,
    tau_sigma: float = 0.0,
    tau_alpha: float = 10.0,
    forward: Callable[[Any], Any] | None = None,
) -> None:
    """Set the NVIB layers of a converted model so that it computes what it computed before, up to the prior's component.

    One pass over `batches`, with ordinary attention, measures each layer's keys: the prior's mean and variance are theirs, its log
    pseudo-count is the mean of ‖x‖² / 2 sqrt(d), and the unit of τ_α that quantity's standard deviation, or 1 where it is smaller (after
    a layer norm it is 0). Call it again without batches to set other τ on the same priors; call it on a part of the model
    (`model.encoder`) to set that part alone.

    Args:
        model: converted with `NVIB(alpha="quadratic")`.
        batches: inputs, as many as are needed to know means and variances. None keeps the priors.
        tau_mu: 1 keeps every vector, 0 puts the prior's mean in its place.
        tau_sigma: uncertainty of the vectors, in standard deviations of the prior; 0 is none.
        tau_alpha: trust in the vectors against the prior, in standard deviations of log α. At 10 hardly anything goes to the prior;
            lower it, below 0 too, to regularise.
        forward: how to run the model on a batch; by default `model(batch)`, or `model(**batch)` if the batch is a mapping, as a
            tokenizer's.

    >>> import torch, bayesattn as ba
    >>> model = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(16, 2, batch_first=True), 2).eval()
    >>> x = torch.randn(8, 10, 16)
    >>> before = model(x)
    >>> ba.nvib.identity(ba.convert(model, ba.nvib.NVIB(alpha="quadratic")), [x])
    >>> torch.allclose(model(x), before, atol=1e-3)
    True
    """
    attentions = [module for module in model.modules() if isinstance(module, ReadsLatent) and module.nvib is not None]
    if not attentions:
        raise ValueError(
            f'{type(model).__name__} has no NVIB layer in its attention: ba.convert(model, ba.nvib.NVIB(alpha="quadratic")) first.'
        )
    if batches is not None:
        _measure(model, attentions, batches, forward or partial(_forward, model))
    for attention in attentions:
        _nvib_of(attention).set_identity(tau_mu, tau_sigma, tau_alpha)


def _measure(
    model: nn.Module,
    attentions: Sequence[ReadsLatent],
    batches: Iterable[Any],
    forward: Callable[[Any], Any],
) -> None:
    modes = {module: module.training for module in model.modules()}
    model.eval()
    seen = [Moments() for _ in attentions]
    for attention, moments in zip(attentions, seen, strict=True):
        attention.moments = moments
    try:
        with torch.no_grad():
            for batch in batches:
                forward(batch)
    finally:
        for attention in attentions:
            attention.moments = None
        for module, mode in modes.items():
            module.training = mode
    for attention, moments in zip(attentions, seen, strict=True):
        moments.to_prior(_nvib_of(attention).prior)


def _forward(model: nn.Module, batch: Any) -> Any:
    return model(**batch) if isinstance(batch, Mapping) else model(batch)


def _nvib_of(attention: ReadsLatent) -> NVIB:
    assert attention.nvib is not None, "only attention with an NVIB is chosen"
    return attention.nvib
