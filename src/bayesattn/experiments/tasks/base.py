"""The contract of a task: data, a base model, a likelihood, metrics."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from torch import Tensor, nn

from bayesattn.alignment import Objective
from bayesattn.convert import convert
from bayesattn.experiments.data.files import DataFile
from bayesattn.experiments.registry import added_later
from bayesattn.experiments.tasks.portrait import Portrait
from bayesattn.posteriors import Posterior
from bayesattn.prediction.likelihood import Likelihood
from bayesattn.prediction.sampled import predict
from bayesattn.support import checks
from bayesattn.support.annotations import Float

Examples = tuple[Tensor, ...]
"""Tensors with the examples first; the last one is what is to be predicted."""

Predictor = Callable[..., Any]
"""Inputs → what `Task.predict` makes of them, with all members of a fitted method; with `point_estimate=True` without any noise. That of a
run `HasModels`."""


@runtime_checkable
class HasModels(Protocol):
    """The fitted models themselves, for tasks that do more with them than predict."""

    models: list[nn.Module]


@dataclass(frozen=True)
class Training:
    """How a model is trained and evaluated. A task has its paper's values as defaults."""

    epochs: int
    """Passes over the training examples."""
    samples: int
    """Sampled predictions at evaluation, for methods that sample."""
    batch_size: int = 64
    """Examples of each step, over all processes."""
    learning_rate: float = 1e-3
    """Peak learning rate of Adam."""
    warmup: float = 0.1
    """Share of the steps in which the learning rate rises linearly to its peak; see --schedule for what follows."""
    train_share: float = 1.0
    """Share of the training examples that is used."""
    schedule: Literal["linear", "constant"] = added_later("linear")
    """After the warm-up the learning rate falls linearly to 0, or stays as it is."""
    weight_decay: float = added_later(0.0)
    """Adam's L2 penalty."""
    patience: int | None = added_later(None)
    """Stop after so many epochs in which neither the likelihood nor the accuracy of the validation examples was as good as ever, and
    take the weights of the last epoch in which both were (as GAT does). None: train to the end."""
    precision: Literal["float32", "bf16"] = added_later("float32")
    """Of matrix products in training; losses, KLs, noise, parameters, validation and evaluation are in float32."""
    by_length: bool = added_later(False)
    """Make batches of texts of similar length, so that little is padding; tasks of translation and of GLUE always do."""
    fused: bool = added_later(False)
    """Take Adam's step in one kernel: the same up to rounding, and on a processor several times faster for large models."""

    def __post_init__(self) -> None:
        checks.whole("epochs", self.epochs)
        checks.whole("samples", self.samples)
        checks.whole("batch_size", self.batch_size)
        checks.positive("learning_rate", self.learning_rate)
        checks.fraction("warmup", self.warmup)
        checks.one_of("schedule", self.schedule, ("linear", "constant"))
        checks.one_of("precision", self.precision, ("float32", "bf16"))
        if checks.finite("weight_decay", self.weight_decay) < 0:
            raise ValueError(f"weight_decay must not be negative, got {self.weight_decay!r}.")
        if self.patience is not None:
            checks.whole("patience", self.patience)
        if not 0 < self.train_share <= 1:
            raise ValueError(f"train_share must lie in (0, 1], got {self.train_share!r}.")


@dataclass(frozen=True)
class Splits:
    """The examples to train, to validate and to test."""

    train: Examples
    validation: Examples
    test: Examples


@dataclass(frozen=True)
class Evaluation:
    """Figures of one fitted model, and what else is worth keeping (anything that JSON can hold)."""

    metrics: dict[str, float]
    details: dict[str, Any] = field(default_factory=dict)


class Task(ABC):
    """Data + model + likelihood + metrics. Its constructor takes its options, a frozen dataclass."""

    training: Training
    """How the paper trains it."""
    likelihood: Likelihood
    """What the model's output is: see `bayesattn.predict`."""
    max_len: int | None = None
    """Longest sequence that attention sees, for the posteriors that are tied to positions."""
    label_names: tuple[str, ...] = ()
    """The classes, where the likelihood is categorical."""
    weight_priors: str | None = None
    """The name of the thesis's improved weight priors for it: see `bayesattn.weight_space.thesis_priors`."""
    files: tuple[DataFile, ...] = ()
    """What must be found before it can run."""
    dropout: float = 0.0
    """Dropout of the base model in training, where the method has none of its own."""
    point_estimate: bool = False
    """Whether it is predicted by one model without noise: methods of several models, or of dropout that stays on, are refused."""

    @abstractmethod
    def load(self) -> Splits:
        """The data."""

    @abstractmethod
    def build(self, dropout: float) -> nn.Module:
        """The base model, fresh, with torch's current seed."""

    def build_with(self, attention: Posterior | Objective, dropout: float) -> nn.Module:
        """The base model with these attention weights: a posterior's, or those of an objective of latent alignment."""
        if isinstance(attention, Objective):
            raise ValueError(
                f"{type(self).__name__} has no latent alignment to train by {type(attention).__name__}: take a task of translation "
                "such as multi30k, or a method of attention weights such as bam-wc."
            )
        return convert(self.build(dropout), attention)

    def narrowed(self, members: int) -> Task:
        """The same task with a model so narrow that `members` of it have the matrix products of one."""
        raise ValueError(
            f"{type(self).__name__} has no narrower model to pack: take a task whose model is trained from scratch, such as digits, mnist "
            "or pos."
        )

    def batches(self, train: Examples, order: Tensor, size: int) -> Sequence[Tensor]:
        """The examples' indices in random `order`, in ⌈examples / size⌉ batches."""
        return order.split(size)

    def lengths(self, train: Examples) -> Tensor | None:
        """How long the examples' texts are, where `Training.by_length` may ask for it."""
        return None

    @abstractmethod
    def nll(self, model: nn.Module, batch: Examples) -> Float[Tensor, " batch"]:
        """Negative log-likelihood of each example."""

    def validation(self, model: nn.Module, batch: Examples) -> dict[str, Float[Tensor, " batch"]]:
        """Figures of each validation example: the likelihood and, where a training is to be stopped early, "validation_accuracy"."""
        return {"validation_nll": self.nll(model, batch)}

    def predict(
        self, model: nn.Module, inputs: Any, samples: int, dropout: bool = False, point_estimate: bool = False
    ) -> Any:
        """What one fitted model says of `inputs`: a `Prediction`, or whatever else `evaluate` reads."""
        return predict(
            model, inputs, samples, likelihood=self.likelihood, dropout=dropout, point_estimate=point_estimate
        )

    @abstractmethod
    def evaluate(self, predict: Predictor, splits: Splits) -> Evaluation:
        """The figures of a fitted model."""

    def out_of_distribution(self, test: Tensor) -> dict[str, Tensor]:
        """Inputs that the model should not be sure of, by name."""
        return {}

    def counted(self, inputs: Tensor) -> Tensor | None:
        """Which positions of sequences are not padding; None: there is none."""
        return None

    def portraits(self, inputs: Tensor) -> list[Portrait] | None:
        """How examples are shown to a person, if they can be."""
        return None

    def floor(self) -> dict[str, float] | None:
        """The figures of the true process on the same test set, where it is known."""
        return None
