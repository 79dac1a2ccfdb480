"""The contract of a task: data, a base model, a likelihood, metrics."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from bayesattn import checks
from bayesattn.annotations import Float
from bayesattn.data.files import DataFile
from bayesattn.prediction import Likelihood
from bayesattn.tasks.portrait import Portrait

Examples = tuple[Tensor, ...]
"""Tensors with the examples first; the last one is what is to be predicted."""

Predictor = Callable[[Any], Any]
"""Inputs → a `Prediction` of the task's likelihood."""


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
    """Share of the steps in which the learning rate rises linearly to its peak; it then falls linearly to 0."""
    train_share: float = 1.0
    """Share of the training examples that is used."""

    def __post_init__(self) -> None:
        checks.whole("epochs", self.epochs)
        checks.whole("samples", self.samples)
        checks.whole("batch_size", self.batch_size)
        checks.positive("learning_rate", self.learning_rate)
        checks.fraction("warmup", self.warmup)
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
    """The name of the thesis's improved weight priors for it: see `bayesattn.weights.thesis_priors`."""
    files: tuple[DataFile, ...] = ()
    """What must be found before it can run."""

    @abstractmethod
    def load(self) -> Splits:
        """The data."""

    @abstractmethod
    def build(self, dropout: float) -> nn.Module:
        """The base model, fresh, with torch's current seed."""

    @abstractmethod
    def nll(self, model: nn.Module, batch: Examples) -> Float[Tensor, " batch"]:
        """Negative log-likelihood of each example."""

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
