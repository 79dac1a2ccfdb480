"""The thesis's toy time series: predict the next value from those before it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

from torch import Tensor, nn

from bayesattn import metrics
from bayesattn.experiments.data.toy import PROCESSES, STEPS, load_toy, truth
from bayesattn.experiments.models.timeseries import TimeSeriesTransformer
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


class ToyTask(Task):
    """One of the five processes. The likelihood of a sequence is the product over its 24 predicted values."""

    training = Training(epochs=100, samples=30, batch_size=80, learning_rate=3e-3)
    likelihood = "gaussian"
    max_len = STEPS

    def __init__(self, options: ToyOptions, process: str):
        checks.whole("hidden", options.hidden)
        checks.whole("feedforward", options.feedforward)
        self.options = options
        self.process = process
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
        true = self._truth()
        figures = _figures(prediction.log_prob(targets), prediction.mean, prediction.variance, targets, true.variance)
        gaps = (true.log_prob - prediction.log_prob(targets).double()).sum(1)
        figures["gap_to_floor"] = gaps.mean().item()
        figures["gap_to_floor_se"] = gaps.std().item() / math.sqrt(len(gaps))
        return Evaluation(figures)

    def floor(self) -> dict[str, float]:
        true = self._truth()
        _, _, test = load_toy(self.process, self.options.data_seed)
        return _figures(true.log_prob, true.mean, true.variance, test[:, 1:], true.variance)

    def _truth(self):
        _, _, test = load_toy(self.process, self.options.data_seed)
        return truth(PROCESSES[self.process](), test)


def _inputs_and_targets(values: Tensor) -> Examples:
    return values[:, :-1].contiguous(), values[:, 1:].contiguous()


def _figures(
    log_prob: Tensor, mean: Tensor, variance: Tensor, targets: Tensor, true_variance: Tensor
) -> dict[str, float]:
    """The thesis's three figures of a predictive distribution.

    The thesis's MSE is that of a value *drawn* from the prediction, E[(Y - X)²]: the mean over Y is taken exactly here.
    """
    mean, variance, targets = mean.double(), variance.double(), targets.double()
    return {
        "log_likelihood": log_prob.double().sum(1).mean().item(),
        "var_mse": metrics.variance_error(variance, true_variance).item(),
        "mse": ((mean - targets).square() + variance).mean().item(),
    }


_FORMULAS = {name: (process.__doc__ or "").split("\n")[0] for name, process in PROCESSES.items()}
for _name, _formula in _FORMULAS.items():
    TASKS.add(
        f"toy-{_name}", f"toy time series {_name.upper()}: {_formula}", ToyOptions(), partial(ToyTask, process=_name)
    )
