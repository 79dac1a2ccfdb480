"""bayesattn: attention weights that are random variables, a KL that trains them, predictions that know when they do not know."""

from bayesattn import kernels, metrics, nn
from bayesattn.attention import attend, attend_scores
from bayesattn.configurable import from_config
from bayesattn.convert import convert, revert
from bayesattn.latents import Latents, record, sampling
from bayesattn.objective import Elbo, constant, cyclic, elbo, linear, sigmoid
from bayesattn.posteriors import Dirichlet, Gaussian, LogNormal, Posterior, Softmax, Weibull, posterior_by_name
from bayesattn.prediction import CategoricalPrediction, GaussianPrediction, Prediction, predict
from bayesattn.priors import ContextualGamma, ContextualLogNormal, GammaPrior, LogNormalPrior

__version__ = "0.1.0"

__all__ = [
    "CategoricalPrediction",
    "ContextualGamma",
    "ContextualLogNormal",
    "Dirichlet",
    "Elbo",
    "GammaPrior",
    "Gaussian",
    "GaussianPrediction",
    "Latents",
    "LogNormal",
    "LogNormalPrior",
    "Posterior",
    "Prediction",
    "Softmax",
    "Weibull",
    "attend",
    "attend_scores",
    "constant",
    "convert",
    "cyclic",
    "elbo",
    "from_config",
    "kernels",
    "linear",
    "metrics",
    "nn",
    "posterior_by_name",
    "predict",
    "record",
    "revert",
    "sampling",
    "sigmoid",
]
