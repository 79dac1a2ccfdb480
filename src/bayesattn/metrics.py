"""Uncertainty measures that torchmetrics does not have.

For calibration error, AUROC and F1 use torchmetrics. Samples come first: [samples, batch, classes].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from bayesattn.support import checks
from bayesattn.support.annotations import Float, Shaped


def entropy(probabilities: Float[Tensor, "*shape classes"]) -> Float[Tensor, "*shape"]:
    """-Σ p log p over the last dimension, in nats; 0 log 0 = 0."""
    return -torch.xlogy(probabilities, probabilities).sum(-1)


def predictive_entropy(probabilities: Float[Tensor, "samples *batch classes"]) -> Float[Tensor, "*batch"]:
    """Entropy of the mean over samples: all that is uncertain."""
    return entropy(probabilities.mean(0))


def expected_entropy(probabilities: Float[Tensor, "samples *batch classes"]) -> Float[Tensor, "*batch"]:
    """Mean over samples of the entropy: what stays uncertain when the latents are known."""
    return entropy(probabilities).mean(0)


def mutual_information(probabilities: Float[Tensor, "samples *batch classes"]) -> Float[Tensor, "*batch"]:
    """Predictive minus expected entropy: what knowing the latents would tell. Never negative."""
    return (predictive_entropy(probabilities) - expected_entropy(probabilities)).clamp_min(0.0)


def variance_error(predicted: Float[Tensor, "*shape"], true: Float[Tensor, "*shape"]) -> Float[Tensor, ""]:
    """E[(predicted variance - true variance)²], the variance error of the thesis's toy series."""
    if predicted.shape != true.shape:
        raise ValueError(
            f"predicted and true variances must have the same shape, got {tuple(predicted.shape)} and {tuple(true.shape)}."
        )
    return (predicted - true).square().mean()


def selective_risk(confidence: Float[Tensor, " batch"], loss: Float[Tensor, " batch"]) -> Float[Tensor, " batch"]:
    """The mean loss of the n surest examples, for n = 1 … batch: risk against coverage. Examples of equal confidence share their loss.

    >>> import torch
    >>> selective_risk(torch.tensor([0.9, 0.5, 0.7]), torch.tensor([0.0, 1.0, 0.0])).tolist()
    [0.0, 0.0, 0.3333333432674408]
    """
    if confidence.shape != loss.shape:
        raise ValueError(
            f"confidence and loss must be of one shape, got {tuple(confidence.shape)} and {tuple(loss.shape)}."
        )
    order = confidence.argsort(descending=True)
    _, group = confidence[order].unique_consecutive(return_inverse=True)
    sizes = torch.bincount(group)
    means = loss.new_zeros(len(sizes)).index_add(0, group, loss[order]) / sizes
    return means[group].cumsum(0) / torch.arange(1, len(loss) + 1, device=loss.device)


def aurc(confidence: Float[Tensor, " batch"], loss: Float[Tensor, " batch"]) -> Float[Tensor, ""]:
    """Area under the curve of risk against coverage: `selective_risk` averaged over all coverages. Lower is better."""
    return selective_risk(confidence, loss).mean()


def soft_accuracy(
    agreeing: Shaped[Tensor, "*shape"], annotators: int = 10, form: Literal["simple", "leave-one-out"] = "simple"
) -> Float[Tensor, "*shape"]:
    """Accuracy of an answer with which `agreeing` of the `annotators` agree (VQA): three are as good as all.

    "simple": min(agreeing / 3, 1), as BAM and the VQA paper print it. "leave-one-out": its mean over all choices of all
    annotators but one, as VQA's evaluation code has it: with 10 annotators 0.3, 0.6, 0.9, 1 in place of 1/3, 2/3, 1, 1.

    >>> import torch
    >>> soft_accuracy(torch.tensor([0, 1, 3, 10]), form="leave-one-out")
    tensor([0.0000, 0.3000, 0.9000, 1.0000])
    """
    checks.one_of("form", form, ("simple", "leave-one-out"))
    number = agreeing.double()
    if bool(((number < 0) | (number > annotators)).any()):
        raise ValueError(f"agreeing must lie between 0 and annotators={annotators}.")
    if form == "simple":
        return (number / 3.0).clamp_max(1.0).float()
    without_one_that_agrees = ((number - 1.0) / 3.0).clamp(0.0, 1.0)
    without_another = (number / 3.0).clamp_max(1.0)
    return ((number * without_one_that_agrees + (annotators - number) * without_another) / annotators).float()


@dataclass(frozen=True)
class PAvPU:
    """Patch accuracy versus patch uncertainty: the share of examples that are accurate and certain, or inaccurate and uncertain.

    With soft accuracies the four counts are sums. `samples` is the number of samples M, which is a part of the metric: the
    test gains power with M, so that with many samples nearly everything is certain. Figures with different M do not compare.
    Results of several batches add up: `a + b`.
    """

    accurate_certain: float
    accurate_uncertain: float
    inaccurate_certain: float
    inaccurate_uncertain: float
    samples: int
    threshold: float
    test: str
    on: str

    @property
    def count(self) -> float:
        """Number of examples."""
        return self.accurate_certain + self.accurate_uncertain + self.inaccurate_certain + self.inaccurate_uncertain

    @property
    def value(self) -> float:
        """(n_ac + n_iu) / n."""
        return (self.accurate_certain + self.inaccurate_uncertain) / self.count

    def __add__(self, other: PAvPU) -> PAvPU:
        mine = (self.samples, self.threshold, self.test, self.on)
        theirs = (other.samples, other.threshold, other.test, other.on)
        if mine != theirs:
            raise ValueError(f"Only results of the same samples, threshold and test add up; got {mine} and {theirs}.")
        return PAvPU(
            self.accurate_certain + other.accurate_certain,
            self.accurate_uncertain + other.accurate_uncertain,
            self.inaccurate_certain + other.inaccurate_certain,
            self.inaccurate_uncertain + other.inaccurate_uncertain,
            *mine,
        )


def pavpu(
    logits: Float[Tensor, "samples batch classes"],
    labels: Shaped[Tensor, " batch"] | None = None,
    *,
    accuracy: Float[Tensor, " batch"] | None = None,
    threshold: float = 0.05,
    test: Literal["paired", "welch"] = "paired",
    on: Literal["logits", "probs"] = "logits",
) -> PAvPU:
    """PAvPU of M sampled predictions.

    An example is certain if the two classes of highest mean probability differ significantly over the samples.

    Args:
        logits: of every sample, [samples, batch, classes]; at least 2 samples.
        labels: true classes; an example is accurate if the class of highest mean probability is the true one.
        accuracy: in place of `labels`: accuracy of each example in [0, 1], soft ones too (VQA), or of a deterministic pass.
        threshold: certain if p ≤ threshold.
        test: "paired" (default, the released code of BAM) or "welch" (two-sample with unequal variances, as the paper's text reads).
        on: test the "logits" (default, the released code) or the "probs" (the paper's text).

    >>> import torch
    >>> logits = torch.tensor([[4.0, 0.0], [0.0, 0.1]]) + 0.1 * torch.randn(20, 2, 2)
    >>> pavpu(logits, torch.tensor([0, 0])).samples
    20
    """
    if (labels is None) == (accuracy is None):
        raise ValueError("Give labels=, or accuracy= in its place, and not both.")
    certain = (top_two_p_values(logits, test=test, on=on) <= threshold).double()
    if accuracy is None:
        accuracy = (logits.double().softmax(-1).mean(0).argmax(-1) == labels).double()
    elif accuracy.shape != certain.shape or accuracy.min() < 0 or accuracy.max() > 1:
        raise ValueError(f"accuracy must hold {certain.shape[0]} values in [0, 1].")
    accurate = accuracy.double()
    return PAvPU(
        (accurate * certain).sum().item(),
        (accurate * (1 - certain)).sum().item(),
        ((1 - accurate) * certain).sum().item(),
        ((1 - accurate) * (1 - certain)).sum().item(),
        samples=logits.shape[0],
        threshold=threshold,
        test=test,
        on=on,
    )


def top_two_p_values(
    logits: Float[Tensor, "samples batch classes"],
    *,
    test: Literal["paired", "welch"] = "paired",
    on: Literal["logits", "probs"] = "logits",
) -> Float[Tensor, " batch"]:
    """How sure a prediction is, as `pavpu` has it: the p-value of the difference of the two classes of highest mean probability.

    A low value is a sure prediction. The arguments are those of `pavpu`.
    """
    checks.one_of("test", test, ("paired", "welch"))
    checks.one_of("on", on, ("logits", "probs"))
    if logits.dim() != 3 or logits.shape[0] < 2:
        raise ValueError(
            f"logits must be [samples, batch, classes] with at least 2 samples, got {tuple(logits.shape)}."
        )
    values = logits.double()
    probabilities = values.softmax(-1)
    top = probabilities.mean(0).topk(2, dim=-1).indices.expand(values.shape[0], -1, -1)
    first, second = (values if on == "logits" else probabilities).gather(-1, top).unbind(-1)
    return _p_value(first, second, test)


def _p_value(first: Tensor, second: Tensor, test: str) -> Tensor:
    """Two-sided p-value of each example's t-test over the samples (dimension 0); 1 where the two never differ."""
    count = first.shape[0]
    if test == "paired":
        difference = first - second
        variance = difference.var(0) / count
        freedom = torch.full_like(variance, count - 1)
        mean = difference.mean(0)
    else:
        parts = torch.stack([first.var(0), second.var(0)]) / count
        variance = parts.sum(0)
        freedom = variance.square() / (parts.square() / (count - 1)).sum(0).clamp_min(torch.finfo(variance.dtype).tiny)
        freedom = freedom.clamp_min(1.0)
        mean = first.mean(0) - second.mean(0)
    statistic = mean.abs() / variance.clamp_min(torch.finfo(variance.dtype).tiny).sqrt()
    return torch.where(mean == 0, 1.0, _student_t_two_sided(statistic, freedom))


def _student_t_two_sided(statistic: Tensor, freedom: Tensor) -> Tensor:
    try:
        from scipy import special
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "pavpu needs scipy for Student's t distribution: pip install 'bayesattn[experiments]', or scipy alone."
        ) from None
    return 2.0 * torch.as_tensor(
        special.stdtr(freedom.cpu().numpy(), -statistic.cpu().numpy()), device=statistic.device
    )
