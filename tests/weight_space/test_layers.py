"""Modules with random parameters: what is drawn, when, and that nothing goes past it."""

from __future__ import annotations

import copy
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import bayesattn as ba
from bayesattn.scopes import modes
from bayesattn.weight_space.layers import RandomParameters, WeightPosterior

FAMILIES = ("gaussian", "laplace", "logistic", "cauchy", "student")
PRIOR = ba.weight_space.WeightPrior("gaussian", 0.5)


class Attend(nn.Module):
    """Self-attention of one input."""

    def __init__(self, attention: nn.Module):
        super().__init__()
        self.attention = attention

    def forward(self, x: Tensor) -> Tensor:
        return self.attention(x, x, x, need_weights=False)[0]


class Positions(nn.Module):
    """A parameter that is no layer's."""

    def __init__(self) -> None:
        super().__init__()
        self.positions = nn.Parameter(torch.randn(5, 4))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.positions


CASES: dict[str, tuple[nn.Module, Tensor]] = {
    "linear": (nn.Linear(4, 3), torch.randn(2, 5, 4)),
    "embedding": (nn.Embedding(7, 4), torch.randint(0, 7, (2, 5))),
    "layer norm": (nn.LayerNorm(4), torch.randn(2, 5, 4)),
    "attention": (Attend(nn.MultiheadAttention(4, 2, batch_first=True)), torch.randn(2, 5, 4)),
    "attention without bias": (Attend(nn.MultiheadAttention(4, 2, bias=False)), torch.randn(2, 5, 4)),
    "separate projections": (
        nn.TransformerDecoderLayer(4, 2, 8, dropout=0.0, batch_first=True, norm_first=True),
        torch.randn(2, 5, 4),
    ),
    "convolution": (nn.Conv1d(4, 3, 3, padding=1, groups=1), torch.randn(2, 4, 5)),
    "convolution 2d": (nn.Conv2d(2, 3, 2), torch.randn(2, 2, 5, 5)),
    "positions": (Positions(), torch.randn(2, 5, 4)),
    "encoder": (
        nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True), 2),
        torch.randn(2, 5, 4),
    ),
}


def run(model: nn.Module, x: Tensor) -> Tensor:
    return model(x, x) if isinstance(model, nn.TransformerDecoderLayer) else model(x)


def randomised(name: str, family: str = "gaussian", scale: float = 0.3, **options: Any) -> tuple[nn.Module, Tensor]:
    model, x = CASES[name]
    made = ba.weight_space.mean_field(
        copy.deepcopy(model), family, PRIOR, start="model", initial_scale=scale, **options
    )
    return made, x


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("family", FAMILIES)
def test_eval_is_the_original_and_samples_are_networks_with_drawn_parameters(name: str, family: str) -> None:
    """What a sampled pass gives is what the plain network gives with the parameters that were drawn.

    In float64: a Cauchy draw may be so large that float32's rounding is seen.
    """
    torch.manual_seed(0)
    model, x = randomised(name, family)
    plain = copy.deepcopy(CASES[name][0]).double().eval()
    model, x = model.double().eval(), x.double() if x.is_floating_point() else x
    with torch.no_grad():
        torch.testing.assert_close(run(model, x), run(plain, x))
        with ba.sampling(), modes.one_draw():
            sampled = run(model, x)
            torch.testing.assert_close(run(model, x), sampled)  # one network
            drawn = {
                f"{owner}.{key}" if owner else key: posterior.draw(module.get_parameter(key))
                for owner, module in model.named_modules()
                if isinstance(module, RandomParameters)
                for key, posterior in module.weight_posteriors.items()
                if isinstance(posterior, WeightPosterior)
            }
        assert set(drawn) == {key for key, _ in plain.named_parameters()}
        plain.load_state_dict(drawn, strict=False)
        torch.testing.assert_close(sampled, run(plain, x))
        with ba.sampling():
            assert not torch.allclose(run(model, x), sampled)


@pytest.mark.parametrize("name", CASES)
def test_the_state_dict_still_has_the_originals_keys(name: str) -> None:
    model, _ = randomised(name)
    before = CASES[name][0].state_dict()
    after = model.state_dict()
    assert all(torch.equal(after[key], value) for key, value in before.items())
    again, x = randomised(name)
    again.load_state_dict(after)
    with ba.sampling(torch.Generator().manual_seed(1)):
        expected = run(model.eval(), x)
    with ba.sampling(torch.Generator().manual_seed(1)):
        assert torch.equal(run(again.eval(), x), expected)


@pytest.mark.parametrize("name", ["linear", "convolution", "attention"])
def test_local_reparameterisation_has_the_moments_of_drawn_weights(name: str) -> None:
    """Row by row: training draws outputs, `sampling()` draws weights."""
    torch.manual_seed(1)
    model, x = randomised(name)
    draws = 2000
    layer = model.attention if isinstance(model, Attend) else model

    many = x[:1].expand(20_000, *x.shape[1:])  # every row has noise of its own

    model.train()
    with torch.no_grad():
        if isinstance(model, Attend):  # its projections: what follows is not linear
            local = torch.cat(layer._project_inputs(many, many, many), -1).unsqueeze(1)
        else:
            local = model(many).unsqueeze(1)
        with ba.sampling():
            if isinstance(model, Attend):
                weight, bias = (layer.weight_posteriors[key] for key in ("in_proj_weight", "in_proj_bias"))
                whole = torch.stack(
                    [
                        nn.functional.linear(x[:1], weight.draw(layer.in_proj_weight), bias.draw(layer.in_proj_bias))
                        for _ in range(draws)
                    ]
                )
            else:
                whole = torch.stack([model(x[:1]) for _ in range(draws)])
    error = (local.var(0) / len(local) + whole.var(0) / draws).sqrt()
    assert ((local.mean(0) - whole.mean(0)).abs() < 4.5 * error).all()
    torch.testing.assert_close(local.std(0), whole.std(0), rtol=0.08, atol=0)


def test_cauchy_outputs_have_the_quartiles_of_drawn_weights() -> None:
    model, x = randomised("linear", "cauchy")
    model.train()
    with torch.no_grad():
        local = model(x[:1].expand(20_000, 5, 4)).unsqueeze(1)
        with ba.sampling():
            whole = torch.stack([model(x[:1]) for _ in range(3000)])
    spread = [samples.quantile(0.75, 0) - samples.quantile(0.25, 0) for samples in (local, whole)]
    torch.testing.assert_close(spread[0], spread[1], rtol=0.15, atol=0)
    torch.testing.assert_close(local.median(0).values, whole.median(0).values, rtol=0, atol=0.15)


def test_local_reparameterisation_has_less_noisy_gradients() -> None:
    """Of a regression's loss by the scales, with 64 rows: the variance is at least ten times smaller, the mean the same."""
    torch.manual_seed(2)
    model = ba.weight_space.mean_field(nn.Linear(10, 1), "gaussian", PRIOR, start="model", initial_scale=0.3)
    x, y = torch.randn(64, 10), torch.randn(64)
    posterior = model.weight_posteriors["weight"]
    assert isinstance(posterior, WeightPosterior)

    def gradients(local: bool) -> Tensor:
        found = []
        for _ in range(400):
            if local:
                output = model(x)
            else:
                with ba.sampling():
                    output = model(x)
            loss = (output.squeeze(1) - y).square().mean()
            found.append(torch.autograd.grad(loss, posterior.raw_scale)[0])
        return torch.stack(found)

    local, whole = gradients(True), gradients(False)
    assert local.var(0).sum() * 10 < whole.var(0).sum()
    error = ((local.var(0) + whole.var(0)) / 400).sqrt()
    assert ((local.mean(0) - whole.mean(0)).abs() < 4.5 * error).all()


def test_a_kl_is_recorded_once_for_each_parameter_and_names_its_layer() -> None:
    model, x = randomised("encoder")
    with ba.record() as recorded:
        model(x)
        model(x)
    layers = [name for name, kl in recorded.by_layer(model).items() if kl.dim() == 0]
    names = {name.replace("weight_posteriors.", "") for name in layers}
    assert names == {key for key, _ in CASES["encoder"][0].named_parameters()}
    plain = dict(CASES["encoder"][0].named_parameters())
    expected = sum(
        torch.distributions.kl_divergence(
            torch.distributions.Normal(plain[key], posterior.scale), torch.distributions.Normal(0.0, 0.5)
        ).sum()
        for key, posterior in (
            (name.replace(".weight_posteriors", "").replace("weight_posteriors.", ""), module)
            for name, module in model.named_modules()
            if isinstance(module, WeightPosterior)
        )
    )
    torch.testing.assert_close(recorded.global_kl, expected)


def test_tied_parameters_have_one_distribution() -> None:
    model = nn.Sequential(nn.Embedding(6, 4), nn.Linear(4, 6, bias=False))
    model[1].weight = model[0].weight
    ba.weight_space.mean_field(model, "laplace", PRIOR)
    assert model[0].weight_posteriors["weight"] is model[1].weight_posteriors["weight"]
    tokens = torch.tensor([[1, 2]])
    with ba.record() as recorded:
        model(tokens)
    assert len(recorded.global_terms) == 1
    with ba.sampling(), modes.one_draw():
        table = model[0](torch.arange(6))
        torch.testing.assert_close(model(tokens), table[tokens] @ table.T)


@pytest.mark.parametrize("family", ["gaussian", "student"])
def test_gradient_checkpointing_repeats_the_draw_and_records_nothing_twice(family: str) -> None:
    model, x = randomised("encoder", family)

    def gradients(checkpointed: bool) -> list[Tensor]:
        torch.manual_seed(3)
        model.zero_grad()
        with ba.record() as recorded:
            output = checkpoint(model, x, use_reentrant=False) if checkpointed else model(x)
        ba.elbo(output.square().mean((1, 2)), recorded, dataset_size=10).backward()  # pyright: ignore[reportOptionalMemberAccess]
        return [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]

    for once, again in zip(gradients(False), gradients(True), strict=True):
        torch.testing.assert_close(once, again)


def test_torchs_fast_paths_do_not_go_past_random_layers() -> None:
    """Only the feedforward part is random: in eval torch would read its weights itself."""
    plain = copy.deepcopy(CASES["encoder"][0])
    model = ba.weight_space.mean_field(plain, "gaussian", PRIOR, where="*.linear1", initial_scale=0.5).eval()
    padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    with torch.no_grad(), ba.sampling():
        first, second = (model(CASES["encoder"][1], src_key_padding_mask=padding) for _ in range(2))
    assert (first - second)[0].abs().min() > 1e-4


def test_no_tensor_is_left_behind_after_an_error() -> None:
    model, _ = randomised("linear", "laplace")
    with pytest.raises(RuntimeError):
        model(torch.zeros(2, 9))
    assert isinstance(model.weight, nn.Parameter)


def test_weights_and_attention_may_both_be_random() -> None:
    model = ba.convert(copy.deepcopy(CASES["encoder"][0]), ba.Weibull(k=5.0))
    ba.weight_space.mean_field(model, "gaussian", PRIOR)
    with ba.record() as recorded:
        output = model(CASES["encoder"][1])
    assert len(recorded.local_terms) == 2
    assert len(recorded.global_terms) == len(list(CASES["encoder"][0].parameters()))
    ba.elbo(output.square().mean((1, 2)), recorded, dataset_size=10).backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_half_precision_models_keep_their_dtype_and_a_kl_in_float32() -> None:
    model = ba.weight_space.mean_field(nn.Linear(4, 3).to(torch.bfloat16), "gaussian", PRIOR)
    with ba.record() as recorded:
        output = model(torch.randn(2, 4, dtype=torch.bfloat16))
    assert output.dtype == torch.bfloat16
    assert recorded.global_kl.dtype == torch.float32


COMPILED = """
import torch, bayesattn as ba
layer = torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
model = ba.weight_space.mean_field(torch.nn.TransformerEncoder(layer, 2), {family!r})
compiled = torch.compile(model, backend="eager")
x = torch.randn(2, 3, 8)
with ba.record() as latents:
    first, second = compiled(x), compiled(x)
assert not torch.allclose(first, second)
assert len(latents.global_terms) == len(list(layer.parameters())) * 2
ba.elbo(first.square().mean((1, 2)), latents, dataset_size=5).backward()
assert all(parameter.grad is not None for parameter in model.parameters())
"""


@pytest.mark.slow
@pytest.mark.parametrize("family", ["gaussian", "laplace"])
def test_a_compiled_model_draws_and_records(family: str) -> None:
    """In a process without shape checks, which cannot be compiled."""
    done = subprocess.run(
        [sys.executable, "-c", COMPILED.format(family=family)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
