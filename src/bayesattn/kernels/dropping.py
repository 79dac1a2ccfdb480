"""Dropout of any tensor from the counters: an operator without a gradient."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bayesattn.kernels import native
from bayesattn.numerics.counter_noise import BLOCK, CounterNoise, NoiseGenerator


@torch.library.custom_op(
    "bayesattn::dropout", mutates_args=(), schema="(Tensor input, Tensor seed, str generator, float p) -> Tensor"
)
def dropout(input: Tensor, seed: Tensor, generator: NoiseGenerator, p: float) -> Tensor:
    """Dropout whose number i is that of key i % 64 of query i // 64, seed for seed the same with and without a compiler."""
    if is_native(input):
        return native.dropout(input, int(seed), generator, p)
    pairs = input.new_empty(()).expand(1, 1, -(-input.numel() // BLOCK), BLOCK)
    kept = CounterNoise(seed, generator).kept(pairs, p).flatten()[: input.numel()].view(input.shape)
    return input * (kept * (1.0 / (1.0 - p))).to(input.dtype)


@dropout.register_fake
def _(input: Tensor, seed: Tensor, generator: str, p: float) -> Tensor:
    return torch.empty_like(input, memory_format=torch.contiguous_format)


@dropout.register_vmap
def _(info: Any, in_dims: tuple[Any, ...], input: Tensor, seed: Tensor, generator: NoiseGenerator, p: float) -> Any:
    """The samples are one larger tensor, with the noise of the first seed."""
    of_input, of_seed = in_dims[:2]
    if of_seed is None:
        raise NotImplementedError("vmap over dropout with the same noise: use randomness='different'.")
    whole = input.expand(info.batch_size, *input.shape) if of_input is None else input.movedim(of_input, 0)
    return dropout(whole, seed.select(of_seed, 0), generator, p), 0


def is_native(tensor: Tensor) -> bool:
    """Whether the compiled kernel reads tensors of this kind."""
    return tensor.device.type == "cpu" and tensor.dtype in native.TYPES and native.is_available()
