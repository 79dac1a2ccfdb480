"""Thousands of training steps and predictions: memory stays as it was after the warm-up."""

from __future__ import annotations

import gc
import resource
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import bayesattn as ba
from torture.attention_cases import Tally, Wrong, expect

GROWTH = 2.0
"""Megabytes that the process may grow by, whatever the number of steps: the allocator's, not ours."""
WARM_UP = 100
"""Steps after which memory is looked at first: at least so many, else a tenth of all."""


def converted_model() -> nn.Module:
    """A small transformer with three kinds of random attention."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, dim_feedforward=16, batch_first=True)
    model = nn.Sequential(nn.TransformerEncoder(layer, 3), nn.Flatten(), nn.Linear(6 * 16, 3))
    posteriors = (ba.Weibull(k=10.0, prior=ba.ContextualGamma(beta=0.1)), ba.Gaussian(), ba.Dirichlet())
    for place, posterior in enumerate(posteriors):
        ba.convert(model, posterior, where=[f"0.layers.{place}.self_attn"])
    return model


def torture_steps(cases: range, tick: Callable[[], object] = lambda: None) -> Tally:
    """Training steps under `record()`."""
    model = converted_model()
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
    inputs, labels = torch.randn(4, 6, 16), torch.randint(3, (4,))

    def step() -> Tensor:
        with ba.record() as latents:
            logits = model(inputs)
        loss = ba.elbo(F.cross_entropy(logits, labels, reduction="none"), latents, kl_weight=0.01)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        return loss.nll

    return _repeated(step, len(cases), tick)


def torture_predictions(cases: range, tick: Callable[[], object] = lambda: None) -> Tally:
    """Calls of `predict`."""
    model = converted_model().eval()
    inputs = torch.randn(4, 6, 16)
    return _repeated(lambda: ba.predict(model, inputs, samples=8).entropy, len(cases), tick)


def _repeated(step: Callable[[], Tensor], times: int, tick: Callable[[], object]) -> Tally:
    tally = Tally()
    before, tensors = 0.0, 0
    try:
        for number in range(times):
            expect(bool(step().isfinite().all()), f"step {number} gives something that is not finite")
            tally.tried += 1
            tick()
            if number == max(WARM_UP, times // 10):
                tensors, before = _tensors(), _megabytes()  # in this order: counting takes memory
        left, after = _tensors(), _megabytes()
        tally.measured = {
            "megabytes after warm-up": round(before, 1),
            "megabytes at the end": round(after, 1),
            "tensors after warm-up": tensors,
            "tensors at the end": left,
        }
        expect(left == tensors, f"{left} tensors are alive, {tensors} were after the warm-up")
        expect(after - before <= GROWTH, f"memory grew from {before:.1f} to {after:.1f} MB")
    except Wrong as problem:
        tally.wrong[0] = str(problem)
    return tally


def _megabytes() -> float:
    """Of this process in memory now."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 1e6


def _tensors() -> int:
    return sum(issubclass(type(each), Tensor) for each in gc.get_objects())
