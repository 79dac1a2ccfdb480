"""Metrics: against scipy's tests, counts by hand, and closed forms."""

from __future__ import annotations

import math
import sys

import pytest
import torch
from scipy import stats

from bayesattn import metrics


@pytest.mark.parametrize("on", ["logits", "probs"])
@pytest.mark.parametrize("test", ["paired", "welch"])
@pytest.mark.parametrize("samples", [2, 10, 100])
def test_pavpu_is_that_of_scipys_t_tests(on: str, test: str, samples: int) -> None:
    logits = torch.randn(samples, 40, 5, dtype=torch.float64) + torch.randn(40, 5, dtype=torch.float64) * 0.5
    labels = torch.randint(5, (40,))
    result = metrics.pavpu(logits, labels, test=test, on=on, threshold=0.05)  # pyright: ignore[reportArgumentType]
    mean = logits.softmax(-1).mean(0)
    values = logits if on == "logits" else logits.softmax(-1)
    counts = {"ac": 0, "au": 0, "ic": 0, "iu": 0}
    for index in range(40):
        first, second = mean[index].topk(2).indices.tolist()
        a, b = values[:, index, first].numpy(), values[:, index, second].numpy()
        p = (stats.ttest_rel(a, b) if test == "paired" else stats.ttest_ind(a, b, equal_var=False)).pvalue
        counts[("a" if first == labels[index] else "i") + ("c" if p <= 0.05 else "u")] += 1
    assert (result.accurate_certain, result.accurate_uncertain) == (counts["ac"], counts["au"])
    assert (result.inaccurate_certain, result.inaccurate_uncertain) == (counts["ic"], counts["iu"])
    assert result.value == pytest.approx((counts["ac"] + counts["iu"]) / 40)
    assert (result.samples, result.count) == (samples, 40)


def test_soft_accuracies_are_summed_as_in_the_paper() -> None:
    logits = torch.zeros(4, 2, 2)
    logits[:, 0, 0] = torch.tensor([8.0, 8.1, 7.9, 8.0])  # certain
    logits[:, 1, 0] = torch.tensor([1.0, -1.0, 1.1, -1.0])  # not
    result = metrics.pavpu(logits, accuracy=torch.tensor([2 / 3, 1 / 3]))
    assert result.accurate_certain == pytest.approx(2 / 3)
    assert result.inaccurate_certain == pytest.approx(1 / 3)
    assert result.accurate_uncertain == pytest.approx(1 / 3)
    assert result.inaccurate_uncertain == pytest.approx(2 / 3)
    assert result.value == pytest.approx(2 / 3)


def test_samples_that_never_differ_are_uncertain_or_certain_as_in_the_reference() -> None:
    """p = 1 where all differences are 0; where they are all equal and not 0, the difference is sure."""
    same = torch.zeros(4, 1, 2)
    assert metrics.pavpu(same, torch.tensor([0])).accurate_certain == 0
    apart = torch.tensor([1.0, 0.0]).expand(4, 1, 2)
    assert metrics.pavpu(apart, torch.tensor([0])).accurate_certain == 1


def test_batches_add_up() -> None:
    logits, labels = torch.randn(10, 30, 4), torch.randint(4, (30,))
    whole = metrics.pavpu(logits, labels)
    parts = metrics.pavpu(logits[:, :11], labels[:11]) + metrics.pavpu(logits[:, 11:], labels[11:])
    assert parts == whole
    with pytest.raises(ValueError, match="Only results of the same samples"):
        _ = whole + metrics.pavpu(logits[:5], labels)


def test_entropies() -> None:
    uniform = torch.full((3, 2, 4), 0.25)
    assert torch.allclose(metrics.predictive_entropy(uniform), torch.full((2,), math.log(4)))
    assert torch.allclose(metrics.mutual_information(uniform), torch.zeros(2), atol=1e-6)
    one_hot = torch.eye(4).unsqueeze(1)
    assert metrics.expected_entropy(one_hot).item() == 0.0
    assert metrics.mutual_information(one_hot).item() == pytest.approx(math.log(4))
    p = torch.rand(5, 3, 6).softmax(-1)
    torch_entropy = torch.distributions.Categorical(p.mean(0)).entropy()
    assert torch.allclose(metrics.predictive_entropy(p), torch_entropy, atol=1e-6)


def test_variance_error() -> None:
    assert metrics.variance_error(torch.tensor([1.0, 3.0]), torch.tensor([1.0, 1.0])).item() == 2.0


@pytest.mark.usefixtures("unchecked")
def test_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    logits, labels = torch.randn(4, 3, 2), torch.tensor([0, 1, 0])
    with pytest.raises(ValueError, match="at least 2 samples, got"):
        metrics.pavpu(logits[:1], labels)
    with pytest.raises(ValueError, match="Give labels=, or accuracy= in its place"):
        metrics.pavpu(logits)
    with pytest.raises(ValueError, match=r"accuracy must hold 3 values in \[0, 1\]"):
        metrics.pavpu(logits, accuracy=torch.tensor([0.0, 1.0, 2.0]))
    with pytest.raises(ValueError, match="Did you mean 'paired'"):
        metrics.pavpu(logits, labels, test="pared")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="must have the same shape"):
        metrics.variance_error(torch.zeros(2), torch.zeros(3))
    monkeypatch.setitem(sys.modules, "scipy", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'bayesattn\[experiments\]'"):
        metrics.pavpu(logits, labels)


def test_selective_risk_is_the_mean_loss_of_the_surest() -> None:
    confidence, loss = torch.tensor([0.2, 0.9, 0.5, 0.7]), torch.tensor([1.0, 0.0, 2.0, 3.0])
    expected = torch.tensor([0.0, 3 / 2, 5 / 3, 6 / 4])
    torch.testing.assert_close(metrics.selective_risk(confidence, loss), expected)
    torch.testing.assert_close(metrics.aurc(confidence, loss), expected.mean())


def test_equal_confidence_shares_the_loss_whatever_the_order() -> None:
    confidence, loss = torch.tensor([0.5, 0.5, 0.5, 0.9]), torch.tensor([1.0, 0.0, 0.0, 0.0])
    for order in ([0, 1, 2, 3], [2, 1, 0, 3], [3, 1, 0, 2]):
        found = metrics.selective_risk(confidence[order], loss[order])
        torch.testing.assert_close(found, torch.tensor([0.0, 1 / 6, 2 / 9, 1 / 4]))


def test_a_perfect_order_has_the_least_area() -> None:
    loss = (torch.rand(200) < 0.3).float()
    noise = torch.rand(200)
    perfect, random = metrics.aurc(-loss + 0.1 * noise, loss), metrics.aurc(noise, loss)
    assert perfect < random
    assert random.item() == pytest.approx(loss.mean().item(), abs=0.1)


def test_soft_accuracy_by_hand() -> None:
    """Of ten annotators; leave-one-out averages min(·/3, 1) over the ten sets of nine."""
    agreeing = torch.arange(11)
    simple = [0, 1 / 3, 2 / 3] + [1.0] * 8
    torch.testing.assert_close(metrics.soft_accuracy(agreeing), torch.tensor(simple))
    sets = []
    for n in range(11):
        answers = [1] * n + [0] * (10 - n)
        left = [min((sum(answers) - answers[out]) / 3, 1) for out in range(10)]
        sets.append(sum(left) / 10)
    torch.testing.assert_close(metrics.soft_accuracy(agreeing, form="leave-one-out"), torch.tensor(sets))
    with pytest.raises(ValueError, match="agreeing must lie between 0 and annotators=10"):
        metrics.soft_accuracy(torch.tensor([11]))


def test_p_values_are_scipys() -> None:
    scipy_stats = pytest.importorskip("scipy.stats")
    logits = torch.randn(12, 5, 3)
    found = metrics.top_two_p_values(logits)
    for example in range(5):
        first, second = logits.double().softmax(-1).mean(0)[example].topk(2).indices.tolist()
        wanted = scipy_stats.ttest_rel(logits[:, example, first].double(), logits[:, example, second].double()).pvalue
        assert found[example].item() == pytest.approx(wanted, rel=1e-6)
