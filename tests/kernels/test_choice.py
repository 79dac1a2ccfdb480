"""Which backend is chosen, that it is the one used, and that its reason is told."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import bayesattn as ba
from bayesattn.kernels import choice, native
from bayesattn.posteriors.rows import Rows


class Plain(ba.Posterior):
    """A researcher's posterior: one file, plain torch noise, nothing said to the kernels."""

    def log_sample(self, scores: Tensor, rows: Rows, generator: torch.Generator | None = None) -> Tensor:
        return scores + torch.empty_like(scores).normal_(generator=generator)

    def kl(self, scores: Tensor, keys: Tensor, rows: Rows) -> Tensor:
        return rows.total_of_pairs(scores.new_ones(()))


SMALL, LARGE = torch.zeros(1, 1, 8, 16), torch.zeros(1, 2, 1500, 16)


@pytest.mark.parametrize(
    ("query", "posterior", "arguments", "backend", "reason"),
    [
        (SMALL, ba.Weibull(), {}, "reference", "64 pairs of query and key are few"),
        (SMALL, ba.Weibull(), {"backend": "chunked"}, "chunked", "asked for"),
        (LARGE, ba.Weibull(), {"backend": "reference"}, "reference", "asked for"),
        (LARGE, ba.Weibull(), {"need_weights": True}, "reference", "the weights themselves are wanted"),
        (LARGE[:, :, :0], ba.Weibull(), {"backend": "chunked"}, "reference", "there is no pair of query and key"),
        (LARGE, ba.Weibull(), {"softcap": 30.0}, "reference", "the kernels have no soft cap"),
        (LARGE, Plain(), {}, "reference", "this Plain has no fused form"),
        (LARGE, Plain(), {"backend": "native"}, "reference", "native was asked for, but this Plain has no fused form"),
        (LARGE, ba.Softmax(), {"dropout_p": 0.1}, "reference", "the dropout of Softmax is torch's own"),
        (LARGE.double(), ba.Weibull(), {}, "chunked", "native computes in float32"),
        (LARGE.to("meta"), ba.Weibull(), {}, "chunked", "native runs on the CPU, these tensors are on meta"),
    ],
)
def test_the_choice_and_its_reason(
    query: Tensor, posterior: ba.Posterior, arguments: dict[str, Any], backend: str, reason: str
) -> None:
    found = ba.kernels.explain(query, query, query, posterior, **arguments)
    assert found.backend == backend
    assert reason in found.reason


def test_a_learned_bias_has_its_gradient() -> None:
    mask = torch.zeros(1, 1, 1500, 1500, requires_grad=True)
    assert "attn_mask has a gradient" in ba.kernels.explain(LARGE, LARGE, LARGE, ba.Weibull(), mask).reason


@pytest.mark.skipif(native.library().functions is None, reason="no compiler")
def test_large_problems_run_native() -> None:
    found = ba.kernels.explain(LARGE, LARGE, LARGE, ba.Weibull())
    assert found.backend == "native"
    assert "4,500,000 pairs" in found.reason


@pytest.mark.skipif(native.library().functions is None, reason="no compiler")
@pytest.mark.usefixtures("unchecked")
def test_one_query_without_gradients_runs_native_sooner() -> None:
    few, keys = torch.zeros(8, 4, 1, 16), torch.zeros(8, 4, 64, 16)
    assert ba.kernels.explain(few, keys, keys, ba.Weibull()).backend == "reference"
    with torch.no_grad():
        assert ba.kernels.explain(few, keys, keys, ba.Weibull()).backend == "native"
        assert ba.kernels.explain(few, keys[:, :, 1:], keys[:, :, 1:], ba.Weibull()).backend == "reference"
        two = few.expand(8, 4, 2, 16)
        assert ba.kernels.explain(two, keys, keys, ba.Weibull()).backend == "reference"


def test_without_native_size_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice.native, "library", lambda: native.Library(None, "no compiler was found"))
    assert ba.kernels.explain(LARGE, LARGE, LARGE, ba.Weibull()).backend == "chunked"
    medium = torch.zeros(1, 1, 200, 16)
    found = ba.kernels.explain(medium, medium, medium, ba.Weibull())
    assert found.backend == "reference"
    assert "no compiler was found" in found.reason


def test_a_posterior_of_ones_own_runs_and_repeats() -> None:
    q = torch.randn(1, 2, 150, 16)
    outputs = []
    for _ in range(2):
        torch.manual_seed(1)
        outputs.append(ba.attend(q, q, q, Plain()))
    assert torch.equal(outputs[0], outputs[1])


@pytest.mark.usefixtures("unchecked")
def test_use_sets_and_restores() -> None:
    q = torch.randn(1, 2, 40, 16)

    def draw() -> Tensor:
        torch.manual_seed(1)
        return ba.attend(q, q, q, ba.Weibull(1.0))

    with ba.kernels.use(noise="hash", backend="chunked"):
        assert ba.kernels.explain(q, q, q, ba.Weibull()).backend == "chunked"
        other = draw()
    assert ba.kernels.noise_generator() == "philox"
    assert not torch.allclose(draw(), other, atol=1e-3)
    with pytest.raises(ValueError, match=r"backend='nativ' is not known\. Did you mean 'native'"):
        ba.attend(q, q, q, ba.Weibull(), backend="nativ")  # pyright: ignore[reportArgumentType]
