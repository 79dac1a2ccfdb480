"""A model that the tree before the move of issue 20 saved loads and gives what it gave. before_the_move/make.py.txt made the files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import bayesattn as ba
from bayesattn.posteriors import Posterior
from bayesattn.support.configurable import from_config

pytest.importorskip("transformers", reason="needs the hf extra: pip install 'bayesattn[hf]'")

import transformers

from bayesattn.huggingface import from_pretrained

FOLDER = Path(__file__).parent / "before_the_move"
EXPECTED = json.loads((FOLDER / "expected.json").read_text())


def from_folder() -> nn.Module:
    return from_pretrained(transformers.BertForSequenceClassification, FOLDER / "model")


def from_state_dict() -> nn.Module:
    """A plain model of the same config, converted with the posterior of the kept config, with the kept weights."""
    config = transformers.BertConfig.from_pretrained(FOLDER / "model")
    del config.bayesattn
    posterior = from_config(EXPECTED["posterior"])
    model: Any = ba.convert(transformers.BertForSequenceClassification(config), posterior)
    model.load_state_dict(torch.load(FOLDER / "state.pt", weights_only=True))
    return model


@pytest.mark.parametrize("load", [from_folder, from_state_dict])
def test_it_gives_what_it_gave(load: Any) -> None:
    model = load().eval()
    tokens = torch.arange(10).view(2, 5)
    with torch.no_grad():
        logits = model(input_ids=tokens).logits
    with torch.no_grad(), ba.sampling(), ba.record() as latents:
        model(input_ids=tokens)
    torch.testing.assert_close(logits, torch.tensor(EXPECTED["logits"]), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(latents.local_kl, torch.tensor(EXPECTED["local_kl"]), rtol=1e-4, atol=0)
    (posterior,) = [module for module in model.modules() if isinstance(module, Posterior)]
    assert posterior.config() == EXPECTED["posterior"]
