"""Run by test_distributed: one of two processes that train data-parallel, each on its half of the batch."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(Path(__file__).parents[1]))  # tests, as pytest has it
from helpers.training_steps import POSTERIORS, build, data, gradients, step


def sharded(model: nn.Module) -> nn.Module:
    """FSDP2: each process keeps a half of every parameter, the posteriors' too."""
    mesh = init_device_mesh("cpu", (2,))
    for module in model.modules():
        if isinstance(module, nn.TransformerEncoderLayer):
            fully_shard(module, mesh=mesh)
    fully_shard(model, mesh=mesh)
    assert all(isinstance(parameter, DTensor) for parameter in model.parameters())
    return model


WAYS: dict[str, Callable[[nn.Module], nn.Module]] = {"replicated": DistributedDataParallel, "sharded": sharded}


def main(rank: int, store: str, way: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    x, padding = data()
    half = slice(2 * rank, 2 * rank + 2)
    for name, posterior in POSTERIORS.items():
        model = WAYS[way](build(posterior))
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
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3])
