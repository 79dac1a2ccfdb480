"""Weight-space inference: the weights of any network as random variables."""

from bayesattn.weights.concrete_dropout import ConcreteDropout, concrete_dropout
from bayesattn.weights.ensemble import Ensemble, ensemble
from bayesattn.weights.laplace import LaplacePosterior, laplace
from bayesattn.weights.mean_field import mean_field
from bayesattn.weights.priors import (
    THESIS_PRIORS,
    WeightPrior,
    fitted_priors,
    load_priors,
    save_priors,
    thesis_priors,
)
from bayesattn.weights.selection import choose_layers
from bayesattn.weights.swag import collect, swag

__all__ = [
    "THESIS_PRIORS",
    "ConcreteDropout",
    "Ensemble",
    "LaplacePosterior",
    "WeightPrior",
    "choose_layers",
    "collect",
    "concrete_dropout",
    "ensemble",
    "fitted_priors",
    "laplace",
    "load_priors",
    "mean_field",
    "save_priors",
    "swag",
    "thesis_priors",
]
