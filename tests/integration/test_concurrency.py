"""One model, many threads or asyncio tasks: each gets what it gets alone, and the model is left as it was."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import nn

import bayesattn as ba
from bayesattn.scopes import modes, recording
from helpers.concurrent_models import KINDS, THREADS, attention, encoder, inputs


@pytest.mark.parametrize("build", KINDS, ids=lambda build: build.__name__)
def test_threads_predict_what_each_predicts_alone(build: Callable[[], nn.Module]) -> None:
    torch.manual_seed(0)
    model = build()
    before = {name: (module.training, set(module.__dict__)) for name, module in model.named_modules()}

    def draw(seed: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(seed)
        return ba.predict(model, inputs(model, seed), samples=3, generator=generator).samples

    alone = [draw(seed) for seed in range(4 * THREADS)]
    with ThreadPoolExecutor(THREADS) as pool:
        together = list(pool.map(draw, range(4 * THREADS)))
    for one, other in zip(alone, together, strict=True):
        torch.testing.assert_close(other, one)
    assert {name: (module.training, set(module.__dict__)) for name, module in model.named_modules()} == before


def test_dropout_of_one_thread_does_not_reach_another() -> None:
    torch.manual_seed(0)
    model = encoder()  # in training mode, so that every prediction must change it
    x = torch.randn(4, 5, 16)
    expected = ba.predict(model, x, point_estimate=True).samples

    def plain(_: int) -> bool:
        return torch.allclose(ba.predict(model, x, point_estimate=True).samples, expected, atol=1e-6)

    def dropping(_: int) -> bool:
        samples = ba.predict(model, x, samples=2, dropout=True).samples
        return bool((samples[0] != samples[1]).any())

    with ThreadPoolExecutor(THREADS) as pool:
        results = list(pool.map(lambda n: (plain if n % 2 else dropping)(n), range(100)))
    assert all(results)
    assert all(module.training for module in model.modules())
    assert torch.backends.mha.get_fastpath_enabled()
    assert torch._C._functorch._is_vmap_fallback_enabled()  # pyright: ignore[reportAttributeAccessIssue]


def test_the_attention_weights_of_a_model_in_training_mode() -> None:
    model = attention()
    with ThreadPoolExecutor(4) as pool:
        layers = list(pool.map(lambda seed: ba.attention_weights(model, inputs(model, seed), samples=2), range(8)))
    for seed, found in enumerate(layers):
        (weights,) = found.values()
        assert weights.point.shape[0] == 1 + seed % 3
        torch.testing.assert_close(weights.samples.sum(-1), torch.ones(weights.samples.shape[:-1]))
    assert model.training


def test_tasks_of_asyncio_record_their_own_terms_though_they_wait_inside_their_blocks() -> None:
    model = attention()

    async def step(seed: int) -> tuple[int, torch.Tensor, torch.Tensor]:
        x = inputs(model, seed)
        generator = torch.Generator().manual_seed(seed)
        with ba.record() as latents, ba.sampling(generator):
            await asyncio.sleep(0.001 * (seed % 3))
            model(x)
            await asyncio.sleep(0.001 * (seed % 5))
            output = model(x)
            await asyncio.sleep(0)
        return len(latents), latents.local_kl.detach(), output.detach()

    async def together() -> list[Any]:
        return await asyncio.gather(*(step(seed) for seed in range(20)))

    torch.manual_seed(0)
    model.eval()
    alone = [asyncio.run(step(seed)) for seed in range(20)]
    for one, other in zip(alone, asyncio.run(together()), strict=True):
        assert one[0] == other[0] == 2
        torch.testing.assert_close(other[1], one[1])
        torch.testing.assert_close(other[2], one[2])
    assert recording._recorder.get() is None
    assert not modes.is_sampling()
