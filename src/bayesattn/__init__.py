"""bayesattn: attention weights that are random variables, a KL that trains them, predictions that know when they do not know."""

from bayesattn import alignment, kernels, metrics, nn, nvib, posteriors, schedules, testing, weight_space
from bayesattn.attention import attend, attend_scores
from bayesattn.convert import NoiseFit, convert, fit_noise, revert, summary, supported
from bayesattn.generation import Generation, generate
from bayesattn.inspection import AttentionWeights, attention_weights
from bayesattn.objective import Elbo, elbo
from bayesattn.posteriors import Dirichlet, Gaussian, LogNormal, Posterior, Softmax, Weibull, posterior_by_name
from bayesattn.posteriors.priors import ContextualGamma, ContextualLogNormal, GammaPrior, LogNormalPrior
from bayesattn.prediction import (
    Abstention,
    BernoulliPrediction,
    CalibratedModel,
    CalibratedPrediction,
    CategoricalPrediction,
    GaussianPrediction,
    Prediction,
    calibrate,
    load_calibration,
    predict,
)
from bayesattn.scopes.modes import sampling
from bayesattn.scopes.recording import Latents, record
from bayesattn.support.configurable import from_config

__version__ = "0.1.0"

__all__ = [
    "Abstention",
    "AttentionWeights",
    "BernoulliPrediction",
    "CalibratedModel",
    "CalibratedPrediction",
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
    "NoiseFit",
    "Posterior",
    "Prediction",
    "Softmax",
    "Weibull",
    "alignment",
    "attend",
    "attend_scores",
    "attention_weights",
    "calibrate",
    "convert",
    "elbo",
    "fit_noise",
    "from_config",
    "generate",
    "kernels",
    "load_calibration",
    "metrics",
    "nn",
    "nvib",
    "posterior_by_name",
    "posteriors",
    "predict",
    "record",
    "revert",
    "sampling",
    "schedules",
    "summary",
    "supported",
    "testing",
    "weight_space",
]
