"""One model, many threads or asyncio tasks: each gets what it gets alone, and the model is left as it was."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
import transformers
from torch import nn

import bayesattn as ba
from bayesattn.scopes import modes, recording

THREADS = 8


def encoder(dropout: float = 0.5) -> nn.Module:
    layer = nn.TransformerEncoderLayer(16, 2, 16, dropout=dropout, batch_first=True)
    return nn.Sequential(nn.TransformerEncoder(layer, 1, enable_nested_tensor=False), nn.Linear(16, 3))


def attention() -> nn.Module:
    return ba.convert(encoder(), ba.Weibull(k=2.0))


def hugging_face() -> nn.Module:
    config = transformers.BertConfig(
        vocab_size=20, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16
    )
    return ba.convert(transformers.BertForTokenClassification(config), ba.Weibull(k=2.0))


def bottleneck() -> nn.Module:
    config = transformers.BertConfig(
        vocab_size=20, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16
    )
    return ba.convert(transformers.BertForTokenClassification(config), ba.nvib.NVIB())


def mean_field() -> nn.Module:
    return ba.weight_space.mean_field(encoder(), "gaussian", start="model", relative_scale=0.3)


def swag() -> nn.Module:
    model = ba.weight_space.swag(encoder(), rank=3)
    for _ in range(4):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))
        ba.weight_space.collect(model)
    return model


def laplace() -> nn.Module:
    model = encoder(0.0).eval()
    return ba.weight_space.laplace(model, torch.randn(10, 5, 16), where="last", prior_precision=1.0)


def concrete_dropout() -> nn.Module:
    return ba.weight_space.concrete_dropout(encoder(0.0))


def ensemble() -> nn.Module:
    return ba.weight_space.ensemble(encoder, 3)


KINDS = [attention, hugging_face, bottleneck, mean_field, swag, laplace, concrete_dropout, ensemble]


def inputs(model: nn.Module, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    if isinstance(model, transformers.PreTrainedModel):
        return torch.randint(20, (1 + seed % 3, 5), generator=generator)
    return torch.randn(1 + seed % 3, 5, 16, generator=generator)


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
