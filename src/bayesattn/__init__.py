"""bayesattn: attention weights that are random variables, a KL that trains them, predictions that know when they do not know."""

from bayesattn import alignment, kernels, metrics, nn, nvib, weights
from bayesattn.attention import attend, attend_scores
from bayesattn.configurable import from_config
from bayesattn.convert import convert, revert, supported
from bayesattn.generation import Generation, generate
from bayesattn.inspection import AttentionWeights, attention_weights
from bayesattn.latents import Latents, record, sampling
from bayesattn.objective import Elbo, constant, cyclic, elbo, linear, sigmoid
from bayesattn.posteriors import Dirichlet, Gaussian, LogNormal, Posterior, Softmax, Weibull, posterior_by_name
from bayesattn.prediction import CategoricalPrediction, GaussianPrediction, Prediction, predict
from bayesattn.priors import ContextualGamma, ContextualLogNormal, GammaPrior, LogNormalPrior

__version__ = "0.1.0"

__all__ = [
    "AttentionWeights",
    "CategoricalPrediction",
    "ContextualGamma",
    "ContextualLogNormal",
    "Dirichlet",
    "Elbo",
    "GammaPrior",
    "Gaussian",
    "GaussianPrediction",
    "Generation",
    "Latents",
    "LogNormal",
    "LogNormalPrior",
    "Posterior",
    "Prediction",
    "Softmax",
    "Weibull",
    "alignment",
    "attend",
    "attend_scores",
    "attention_weights",
    "constant",
    "convert",
    "cyclic",
    "elbo",
    "from_config",
    "generate",
    "kernels",
    "linear",
    "metrics",
    "nn",
    "nvib",
    "posterior_by_name",
    "predict",
    "record",
    "revert",
    "sampling",
    "sigmoid",
    "supported",
    "weights",
]
