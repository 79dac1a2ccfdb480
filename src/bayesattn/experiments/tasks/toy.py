"""The thesis's toy time series: predict the next value from those before it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

from torch import Tensor, nn

from bayesattn import metrics
from bayesattn.experiments.data.toy import M5, PROCESSES, STEPS, Truth, load_toy, truth, variance_given_last
from bayesattn.experiments.models.timeseries import TimeSeriesTransformer
from bayesattn.experiments.registry import added_later
from bayesattn.experiments.tasks.base import Evaluation, Examples, Predictor, Splits, Task, Training
from bayesattn.experiments.tasks.portrait import Portrait, series
from bayesattn.experiments.tasks.registered import TASKS
from bayesattn.prediction.predictions import GaussianPrediction
from bayesattn.support import checks


@dataclass(frozen=True)
class ToyOptions:
    """The model of the toy series, and which draw of the data."""

    hidden: int = 64
    """Width of the transformer."""
    feedforward: int = 128
    """Width of its inner layer (not stated in the thesis)."""
    data_seed: int = 0
    """Which draw of the process. All seeds of a table share one, as in the thesis."""


@dataclass(frozen=True)
class M5Options(ToyOptions):
    """The model of M5, and the constants of the process: the thesis does not state them."""

    waves: int = added_later(5)
    """N, the cosines of each value (inferred)."""
    window: int = added_later(5)
    """K, the values that the next one depends on (inferred)."""


class ToyTask(Task):
    """One of the five processes. The likelihood of a sequence is the product over its 24 predicted values."""

    training = Training(epochs=100, samples=30, batch_size=80, learning_rate=3e-3)
    likelihood = "gaussian"
    max_len = STEPS

    def __init__(self, options: ToyOptions, process: str):
        checks.whole("hidden", options.hidden)
        checks.whole("feedforward", options.feedforward)
        self.options = options
        self.process = M5(options.waves, options.window) if isinstance(options, M5Options) else PROCESSES[process]()
        self.weight_priors = process.upper()

    def load(self) -> Splits:
        train, validation, test = load_toy(self.process, self.options.data_seed)
        return Splits(_inputs_and_targets(train), _inputs_and_targets(validation), _inputs_and_targets(test))

    def build(self, dropout: float) -> nn.Module:
        return TimeSeriesTransformer(STEPS, self.options.hidden, feedforward=self.options.feedforward, dropout=dropout)

    def portraits(self, inputs: Tensor) -> list[Portrait]:
        return [series(values) for values in inputs]

    def nll(self, model: nn.Module, batch: Examples) -> Tensor:
        inputs, targets = batch
        mean, scale = model(inputs)
        # the Gaussian log density written out: torch.distributions' checks cost as much as the layer
        standardised = (targets - mean) / scale
        return (0.5 * standardised.square() + scale.log() + 0.5 * math.log(2 * math.pi)).sum(1)

    def evaluate(self, predict: Predictor, splits: Splits) -> Evaluation:
        inputs, targets = splits.test
        prediction = predict(inputs)
        assert isinstance(prediction, GaussianPrediction)
        true, given_last = self._truth()
        log_prob = prediction.log_prob(targets).double()
        figures = _figures(log_prob, prediction.mean, prediction.variance, targets, true, given_last)
        gaps = (true.log_prob - log_prob).sum(1)
        figures["gap_to_floor"] = gaps.mean().item()
        figures["gap_to_floor_se"] = gaps.std().item() / math.sqrt(len(gaps))
        return Evaluation(figures)

    def floor(self) -> dict[str, float]:
        true, given_last = self._truth()
        _, targets = self.load().test
        return _figures(true.log_prob, true.mean, true.variance, targets, true, given_last)

    def _truth(self) -> tuple[Truth, Tensor]:
        """What the process says of the test values given all before them, and their variance given the last one alone."""
        _, _, test = load_toy(self.process, self.options.data_seed)
        return truth(self.process, test), variance_given_last(self.process, test)


def _inputs_and_targets(values: Tensor) -> Examples:
    return values[:, :-1].contiguous(), values[:, 1:].contiguous()


def _figures(
    log_prob: Tensor, mean: Tensor, variance: Tensor, targets: Tensor, true: Truth, given_last: Tensor
) -> dict[str, float]:
    """The thesis's three figures of a predictive distribution; the variance error given the whole past, and given X_t alone.

    The thesis prints the latter, E[(var(Y' | X_t) - var(X' | X_t))²]: where the next value depends on more than the last one, the true
    law itself has an error. The thesis's MSE is that of a value *drawn* from the prediction, E[(Y - X)²]: the mean over Y is taken
    exactly here.
    """
    mean, variance, targets = mean.double(), variance.double(), targets.double()
    return {
        "log_likelihood": log_prob.double().sum(1).mean().item(),
        "var_mse": metrics.variance_error(variance, true.variance).item(),
        "var_mse_given_last": metrics.variance_error(variance, given_last).item(),
        "mse": ((mean - targets).square() + variance).mean().item(),
    }


_FORMULAS = {name: (process.__doc__ or "").split("\n")[0] for name, process in PROCESSES.items()}
for _name, _formula in _FORMULAS.items():
    TASKS.add(
        f"toy-{_name}",
        f"toy time series {_name.upper()}: {_formula}",
        M5Options() if _name == "m5" else ToyOptions(),
        partial(ToyTask, process=_name),
    )
