"""Predictions that know when they do not know."""

from bayesattn.prediction.calibration import (
    Abstention,
    CalibratedModel,
    CalibratedPrediction,
    calibrate,
    load_calibration,
)
from bayesattn.prediction.likelihood import Likelihood
from bayesattn.prediction.predictions import BernoulliPrediction, CategoricalPrediction, GaussianPrediction, Prediction
from bayesattn.prediction.sampled import predict

__all__ = [
    "Abstention",
    "BernoulliPrediction",
    "CalibratedModel",
    "CalibratedPrediction",
    "CategoricalPrediction",
    "GaussianPrediction",
    "Likelihood",
    "Prediction",
    "calibrate",
    "load_calibration",
    "predict",
]
