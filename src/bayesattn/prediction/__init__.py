"""Predictions that know when they do not know."""

from bayesattn.prediction.likelihood import Likelihood
from bayesattn.prediction.predictions import BernoulliPrediction, CategoricalPrediction, GaussianPrediction, Prediction
from bayesattn.prediction.sampled import predict

__all__ = ["BernoulliPrediction", "CategoricalPrediction", "GaussianPrediction", "Likelihood", "Prediction", "predict"]
