"""Recording."""

from __future__ import annotations

import gc
import threading

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import bayesattn as ba
from bayesattn.scopes import modes, recording
from helpers.shared_layer import shared


def test_a_layer_that_runs_three_times_records_three_terms() -> None:
    model, x = shared(), torch.randn(4, 5, 8)
    with ba.record() as latents:
        model(x)
    assert len(latents.local_terms) == 3
    assert torch.allclose(latents.local_kl, sum(term.kl for term in latents.local_terms))
    by_layer = latents.by_layer(model)
    assert list(by_layer) == ["attention.posterior"]
    assert torch.allclose(by_layer["attention.posterior"], latents.local_kl)


def test_the_innermost_recorder_gets_the_terms() -> None:
    model, x = shared(), torch.randn(4, 5, 8)
    with ba.record() as outer:
        model(x)
        with ba.record() as inner:
            model(x)
        model(x)
    assert (len(inner), len(outer)) == (3, 6)


def test_nothing_is_kept_when_nobody_records() -> None:
    model, x = shared(), torch.randn(4, 5, 8)
    output = model(x)
    with ba.record() as latents:
        pass
    assert len(latents) == 0
    del output
    gc.collect()
    before = sum(issubclass(type(thing), torch.Tensor) for thing in gc.get_objects())
    for _ in range(5):
        model(x)
    gc.collect()
    assert sum(issubclass(type(thing), torch.Tensor) for thing in gc.get_objects()) == before


def test_a_recorder_is_closed_by_an_exception() -> None:
    with pytest.raises(RuntimeError, match="stop"), ba.record():
        raise RuntimeError("stop")
    assert recording._recorder.get() is None


def test_another_thread_does_not_see_the_recorder_or_the_mode() -> None:
    seen = []
    with ba.record(), ba.sampling():
        thread = threading.Thread(target=lambda: seen.append((recording._recorder.get(), modes.is_sampling())))
        thread.start()
        thread.join()
    assert seen == [(None, False)]


@pytest.mark.parametrize("inside", [True, False])
def test_checkpointing_gives_the_same_loss_and_gradients_and_records_nothing_twice(inside: bool) -> None:
    """Whether the backward pass, and so the recomputation, happens inside or outside of the recorder."""

    def run(recompute: bool) -> tuple[torch.Tensor, list[torch.Tensor], int]:
        torch.manual_seed(1)
        model, x = shared(), torch.randn(4, 5, 8)
        with ba.record() as latents:
            output = model(x, recompute)
            loss = ba.elbo(output.square().mean((1, 2)), latents)
            if inside:
                loss.backward()
        if not inside:
            loss.backward()
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        return loss.loss.detach(), gradients, len(latents)

    plain, checkpointed = run(False), run(True)
    assert torch.equal(plain[0], checkpointed[0])
    assert len(plain[1]) == len(checkpointed[1]) == len(list(shared().parameters()))
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(plain[1], checkpointed[1], strict=True))
    assert plain[2] == checkpointed[2] == 3


def test_checkpointing_works_when_nobody_records() -> None:
    model, x = shared(), torch.randn(4, 5, 8)
    model(x, True).sum().backward()
    assert model.attention.in_proj_weight.grad is not None


def test_reentrant_checkpointing_which_loses_the_gradient_of_the_kl_is_refused() -> None:
    model, x = shared(), torch.randn(4, 5, 8, requires_grad=True)
    with ba.record() as latents:
        output = checkpoint(model, x, use_reentrant=True)
    with pytest.raises(ValueError, match="use_reentrant=False"):
        ba.elbo(output.square().mean((1, 2)), latents)


def test_global_terms_count_once_for_each_source() -> None:
    first, second = object(), object()
    with ba.record() as latents:
        recording.add_global(torch.tensor(2.0), first)
        recording.add_global(torch.tensor(3.0), second)
        recording.add_global(torch.tensor(2.5), first)
    assert latents.global_kl.item() == 5.5
    assert len(latents) == 2


def test_messages() -> None:
    with ba.record() as latents:
        pass
    with pytest.raises(ValueError, match=r"No local KL was recorded. Run the model inside `with ba.record\(\)"):
        _ = latents.local_kl
    with ba.record() as latents:
        model = shared()
        model(torch.randn(2, 5, 8))
        model(torch.randn(3, 5, 8))
    with pytest.raises(ValueError, match="different batch sizes"):
        _ = latents.local_kl
    with pytest.raises(ValueError, match="is not a part of this model"):
        latents.by_layer(nn.Linear(2, 2))
