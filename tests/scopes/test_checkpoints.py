"""Gradient checkpointing repeats the draws of a generator: the gradients are those without it, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import bayesattn as ba

both_kinds = pytest.mark.parametrize("reentrant", [False, True], ids=["hooks", "reentrant"])
Run = Callable[[Callable[[Tensor], Tensor], Tensor], Tensor]


class TorchNoise(ba.Posterior):
    """Draws from torch's generator itself and not from a counter."""

    def log_sample(self, scores: Tensor, rows, generator=None) -> Tensor:
        return scores + torch.empty_like(scores).normal_(generator=generator)

    def kl(self, scores: Tensor, keys: Tensor, rows) -> Tensor:
        return rows.total_of_pairs(scores.new_ones(()))


def plainly(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    return function(x)


def network(posterior: ba.Posterior) -> nn.ModuleList:
    torch.manual_seed(0)
    layers = [ba.nn.MultiheadAttention(8, 2, batch_first=True, posterior=posterior, dropout=0.2) for _ in range(3)]
    return nn.ModuleList(layers)


def gradients(
    layers: nn.ModuleList,
    run: Run,
    *,
    inner: Run = plainly,
    open_in_backward: bool = False,
    noise: str = "philox",
    backwards: int = 1,
) -> tuple[list[Tensor], Tensor]:
    """Of a pass whose last layer runs twice, all noise from one generator; and the generator's state afterwards."""
    x = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(1)).requires_grad_()
    generator = torch.Generator().manual_seed(2)
    torch.manual_seed(3)

    def first_two(x: Tensor) -> Tensor:
        x = layers[0](x, x, x)[0]
        return inner(lambda x: layers[1](x, x, x)[0], x)

    with ExitStack() as blocks:
        blocks.enter_context(ba.sampling(generator))
        blocks.enter_context(ba.kernels.use(noise=noise))  # pyright: ignore[reportArgumentType]
        y = run(first_two, x)
        for _ in range(2):
            y = run(lambda y: layers[2](y, y, y)[0], y)
        if not open_in_backward:
            blocks.close()
        for remaining in reversed(range(backwards)):
            y.square().sum().backward(retain_graph=remaining > 0)
    found = [x.grad, *(parameter.grad for parameter in layers.parameters() if parameter.grad is not None)]
    layers.zero_grad()
    return found, generator.get_state()  # pyright: ignore[reportReturnType]


@both_kinds
@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad=True")  # of the inner ones in the first run
@pytest.mark.parametrize("nested", [False, True], ids=["flat", "nested"])
@pytest.mark.parametrize("mode", ["train", "eval"])
@pytest.mark.parametrize("open_in_backward", [False, True], ids=["closed", "open"])
@pytest.mark.parametrize(
    "posterior", [ba.Weibull(k=1.0), ba.Dirichlet(), TorchNoise()], ids=lambda each: type(each).__name__
)
def test_the_gradients_are_those_without_checkpointing(
    posterior: ba.Posterior, open_in_backward: bool, mode: str, nested: bool, reentrant: bool
) -> None:
    def checkpointed(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        return checkpoint(function, x, use_reentrant=reentrant)  # pyright: ignore[reportReturnType]

    layers = network(posterior).train(mode == "train")
    inner = checkpointed if nested else plainly
    expected, state = gradients(layers, plainly, open_in_backward=open_in_backward)
    found, state_after = gradients(layers, checkpointed, inner=inner, open_in_backward=open_in_backward)
    assert len(found) == len(expected) > 10
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))
    assert torch.equal(state_after, state)


def test_two_backward_passes_and_the_kind_of_noise() -> None:
    def checkpointed(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        return checkpoint(function, x, use_reentrant=False)  # pyright: ignore[reportReturnType]

    layers = network(ba.Weibull(k=1.0))
    expected, _ = gradients(layers, plainly, noise="hash", backwards=2)
    found, _ = gradients(layers, checkpointed, noise="hash", backwards=2)
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))
    other, _ = gradients(layers, plainly, backwards=2)
    assert not torch.allclose(other[0], expected[0])


@both_kinds
def test_a_generator_of_the_call_itself(reentrant: bool) -> None:
    q = torch.randn(1, 2, 5, 4, requires_grad=True)
    states, found = [], []
    for repeated in (False, True):
        generator = torch.Generator().manual_seed(2)
        call = lambda x: ba.attend(x, x, x, ba.Weibull(k=1.0), generator=generator)  # noqa: B023, E731
        output = checkpoint(call, q, use_reentrant=reentrant) if repeated else call(q)
        output.square().sum().backward()  # pyright: ignore
        found.append(q.grad)
        states.append(generator.get_state())
        q.grad = None
    assert torch.equal(found[0], found[1])
    assert torch.equal(states[0], states[1])


def test_a_repetition_that_does_something_else_is_noticed() -> None:
    layer = network(ba.Weibull())[0].eval()
    x = torch.randn(2, 5, 8, requires_grad=True)
    calls = []

    def function(x: Tensor) -> Tensor:
        calls.append(1)
        for _ in calls:
            x = layer(x, x, x)[0]
        return x

    with ba.sampling(torch.Generator().manual_seed(1)):
        output = checkpoint(function, x, use_reentrant=True)
    with pytest.raises(RuntimeError, match="draws more when it is run again"):
        output.sum().backward()  # pyright: ignore
