"""Configs: JSON there and back, and clear words about bad ones."""

from __future__ import annotations

import json

import pytest

import bayesattn as ba


def test_a_config_is_json_and_gives_the_same_object() -> None:
    posterior = ba.Weibull(k=3.0, prior=ba.ContextualGamma(beta=0.2, hidden=7, activation="tanh"), kl_scores="raw")
    again = ba.from_config(json.loads(json.dumps(posterior.config())))
    assert again.k == 3.0
    assert again.kl_scores == "raw"
    assert (again.prior.beta, again.prior.hidden, again.prior.activation) == (0.2, 7, "tanh")


def test_printed_it_shows_its_arguments() -> None:
    assert "k=3.0" in repr(ba.Weibull(k=3.0))
    assert "beta=0.2" in repr(ba.Weibull(prior=ba.ContextualGamma(beta=0.2)))


@pytest.mark.usefixtures("unchecked")
def test_bad_configs_are_explained() -> None:
    with pytest.raises(ValueError, match="Did you mean 'Weibull'"):
        ba.from_config({"class": "Weibul"})
    with pytest.raises(ValueError, match=r"Weibull has no argument 'kk'. Did you mean 'k'"):
        ba.from_config({"class": "Weibull", "kk": 3.0})
    with pytest.raises(ValueError, match="a dict with a 'class' entry"):
        ba.from_config({"k": 3.0})
    deep: dict = {"class": "Weibull"}
    for _ in range(10_000):
        deep = {"class": "Weibull", "prior": deep}
    with pytest.raises(ValueError, match="config is nested more than 32 deep"):
        ba.from_config(deep)
