"""What held-out data say about any model: temperature, scores of answer and input, abstention, conformal sets."""

from bayesattn.prediction.calibration.answers import Abstention, CalibratedPrediction
from bayesattn.prediction.calibration.calibrated import CalibratedModel, calibrate, load_calibration
from bayesattn.prediction.calibration.scores import SCORES

__all__ = ["SCORES", "Abstention", "CalibratedModel", "CalibratedPrediction", "calibrate", "load_calibration"]
