"""Generated cases of predictions at once, in threads or in tasks of asyncio: each gets what it gets alone."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import torch
from torch import Tensor, nn

import bayesattn as ba
from helpers.concurrent_models import KINDS, THREADS, inputs
from torture.attention_cases import Tally, Wrong, expect, tally_of

__all__ = ["ConcurrentCase", "Wrong", "torture_tasks", "torture_threads"]


@dataclass(frozen=True)
class ConcurrentCase:
    """One model, asked by several at once; decided by its number."""

    number: int
    kind: str
    samples: int
    evaluating: bool
    """Whether the model is in eval mode already."""

    @classmethod
    def of(cls, number: int) -> ConcurrentCase:
        """The case of this number."""
        pick = random.Random(number)
        return cls(number, pick.choice(KINDS).__name__, pick.randint(1, 5), pick.random() < 0.3)

    def model(self) -> nn.Module:
        """The model, always the same."""
        torch.manual_seed(self.number)
        model = next(build for build in KINDS if build.__name__ == self.kind)()
        return model.eval() if self.evaluating else model


def check_threads(case: ConcurrentCase) -> None:
    """Several threads predict with one model what each predicts alone, and leave its modes as they were."""
    model = case.model()
    modes = [module.training for module in model.modules()]

    def draw(seed: int) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        dropout = seed % 2 == 0 and any(isinstance(module, nn.Dropout) and module.p > 0 for module in model.modules())
        asked = inputs(model, seed)
        return ba.predict(model, asked, samples=case.samples, dropout=dropout, generator=generator).samples

    alone = [draw(seed) for seed in range(THREADS)]
    with ThreadPoolExecutor(THREADS) as pool:
        together = list(pool.map(draw, range(THREADS)))
    _compare(alone, together)
    expect(modes == [module.training for module in model.modules()], "a mode was changed")


def check_tasks(case: ConcurrentCase) -> None:
    """Several tasks record and sample in blocks in which they wait, and each gets its own terms and its own noise."""
    model = case.model().eval()

    async def run(seed: int) -> tuple[int, Tensor]:
        pick = random.Random(case.number * THREADS + seed)
        with ba.record() as latents, ba.sampling(torch.Generator().manual_seed(seed)):
            await asyncio.sleep(0.001 * pick.randint(0, 3))
            with torch.no_grad():
                output = model(inputs(model, seed))
            await asyncio.sleep(0.001 * pick.randint(0, 3))
        return len(latents), output.logits if hasattr(output, "logits") else output

    async def all_at_once() -> list[tuple[int, Tensor]]:
        return await asyncio.gather(*(run(seed) for seed in range(THREADS)))

    alone = [asyncio.run(run(seed)) for seed in range(THREADS)]
    together = asyncio.run(all_at_once())
    expect([terms for terms, _ in alone] == [terms for terms, _ in together], "a KL term went to another task")
    _compare([output for _, output in alone], [output for _, output in together])


def _compare(alone: list[Tensor], together: list[Tensor]) -> None:
    for seed, (one, other) in enumerate(zip(alone, together, strict=True)):
        expect(torch.allclose(one, other, atol=1e-5), f"number {seed} got another result than alone")


def torture_threads(numbers: range, tick: Callable[[], object]) -> Tally:
    """The cases of these numbers, in threads."""
    return tally_of(numbers, ConcurrentCase.of, check_threads, tick)


def torture_tasks(numbers: range, tick: Callable[[], object]) -> Tally:
    """The cases of these numbers, in tasks of asyncio."""
    return tally_of(numbers, ConcurrentCase.of, check_tasks, tick)
