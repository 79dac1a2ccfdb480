"""Run by test_distributed: one of two processes that train data-parallel, each on its half of the batch."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(Path(__file__).parents[1]))  # tests, as pytest has it
from helpers.training_steps import POSTERIORS, build, data, gradients, step


def main(rank: int, store: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    x, padding = data()
    half = slice(2 * rank, 2 * rank + 2)
    for name, posterior in POSTERIORS.items():
        model = DistributedDataParallel(build(posterior))
        step(model, x[half], padding[half], seed=rank)
        together = gradients(model)
        apart = []
        for other in range(2):
            alone = build(posterior)
            step(alone, x[2 * other : 2 * other + 2], padding[2 * other : 2 * other + 2], seed=other)
            apart.append(gradients(alone))
        for parameter, gradient in together.items():
            expected = (apart[0][parameter] + apart[1][parameter]) / 2
            scale = expected.abs().max().clamp_min(1e-6)
            assert (gradient - expected).abs().max() <= 1e-4 * scale, (name, parameter)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
