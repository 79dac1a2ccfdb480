"""A head is read as what it is: by a Hugging Face config, or by what the caller says; never a softmax over one class."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers
from torch import nn

import bayesattn as ba


def classifier(**others: Any) -> nn.Module:
    config = transformers.BertConfig(
        vocab_size=20, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, **others
    )
    return ba.convert(transformers.BertForSequenceClassification(config), ba.Weibull(k=1.0))


WORDS = torch.randint(20, (3, 5))


@pytest.mark.parametrize("others", [{"num_labels": 1}, {"num_labels": 2, "problem_type": "regression"}])
def test_a_regression_head_gives_values(others: dict[str, Any]) -> None:
    model = classifier(**others)
    prediction = ba.predict(model, WORDS, samples=8)
    assert type(prediction) is ba.Prediction
    assert (prediction.mean != 1.0).all()
    assert (prediction.variance > 0).all()


def test_a_head_of_several_labels_is_read_label_by_label() -> None:
    model = classifier(num_labels=3, problem_type="multi_label_classification")
    prediction = ba.predict(model, WORDS, samples=8)
    assert isinstance(prediction, ba.BernoulliPrediction)
    torch.testing.assert_close(prediction.mean, prediction.samples.sigmoid().mean(0))
    assert not torch.allclose(prediction.mean.sum(-1), torch.ones(3))


def test_ordinary_heads_are_categorical() -> None:
    for others in ({"num_labels": 3}, {"problem_type": "single_label_classification"}):
        assert isinstance(ba.predict(classifier(**others), WORDS, samples=4), ba.CategoricalPrediction)


def test_what_is_not_known_is_refused() -> None:
    model = classifier()
    model.config.problem_type = "ranking"  # pyright: ignore
    with pytest.raises(ValueError, match=r"config.problem_type is 'ranking'.* say with likelihood="):
        ba.predict(model, WORDS, samples=2)
    model = nn.Sequential(nn.TransformerEncoderLayer(8, 2, batch_first=True), nn.Linear(8, 1))
    ba.convert(model, ba.Weibull(k=1.0))
    with pytest.raises(ValueError, match=r"softmax of a single class is always 1. Say likelihood='bernoulli'"):
        ba.predict(model, torch.randn(2, 4, 8))
    assert isinstance(ba.predict(model, torch.randn(2, 4, 8), likelihood="bernoulli"), ba.BernoulliPrediction)
