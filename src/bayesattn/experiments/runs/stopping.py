"""Early stopping as in GAT's code."""

from __future__ import annotations

import math
from dataclasses import dataclass

from bayesattn.support import checks


@dataclass
class Stopping:
    """Watches the likelihood and the accuracy of the validation examples.

    The weights to keep are those of the last epoch in which *both* were as good as ever; training ends after `patience` epochs in
    which *neither* was.

    >>> watch = Stopping(patience=1)
    >>> watch.keeps(1.0, 0.5), watch.keeps(0.9, 0.4), watch.keeps(2.0, 0.4), watch.is_over
    (True, False, False, True)
    """

    patience: int
    nll: float = math.inf
    accuracy: float = -math.inf
    waited: int = 0

    def __post_init__(self) -> None:
        checks.whole("patience", self.patience)

    def keeps(self, nll: float, accuracy: float) -> bool:
        """Take the figures of one more epoch; whether its weights are those to keep."""
        better, righter = nll <= self.nll, accuracy >= self.accuracy
        self.waited = 0 if better or righter else self.waited + 1
        self.nll, self.accuracy = min(self.nll, nll), max(self.accuracy, accuracy)
        return better and righter

    @property
    def is_over(self) -> bool:
        """Whether training is to end."""
        return self.waited >= self.patience
