"""A Bayesian text classifier from the folder that `save_pretrained` wrote, with its tokenizer, and what it looks at in a text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bayesattn.experiments.report import sections
from bayesattn.experiments.tasks.portrait import Portrait
from bayesattn.inspection import attention_weights

SUFFIX = "ForSequenceClassification"


def saved_classifier(path: Path) -> tuple[Any, Any]:
    """The model, in eval mode, and its tokenizer.

    Refused are a folder without a tokenizer, for which transformers makes up one that knows no word, and a model of another
    kind, which transformers gives a head with random weights.
    """
    from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

    from bayesattn.huggingface import from_pretrained

    path = Path(path)
    if not (path / "config.json").is_file():
        raise FileNotFoundError(
            f"{path} holds no saved model: config.json is missing. Write it with model.save_pretrained({str(path)!r})."
        )
    kinds = AutoConfig.from_pretrained(path).architectures or []
    if not any(kind.endswith(SUFFIX) for kind in kinds):
        raise ValueError(
            f"{path} holds a {' or '.join(kinds) or 'model of an unknown kind'}, not a text classifier: take a folder of a model "
            f"whose class ends in {SUFFIX}."
        )
    model = from_pretrained(AutoModelForSequenceClassification, path).eval()
    if not any((path / name).is_file() for name in ("tokenizer.json", "tokenizer_config.json")):
        raise FileNotFoundError(
            f"{path} holds a model without a tokenizer: write the tokenizer beside it with tokenizer.save_pretrained({str(path)!r})."
        )
    tokenizer = AutoTokenizer.from_pretrained(path)
    positions = getattr(model.config, "max_position_embeddings", None)
    if isinstance(positions, int) and positions > 0:  # a tokenizer need not know how much its model can read
        tokenizer.model_max_length = min(tokenizer.model_max_length, positions)
    return model, tokenizer


def encoded(tokenizer: Any, texts: list[str]) -> dict[str, Tensor]:
    """The texts as the model takes them, cut where they are longer than it can read."""
    return dict(tokenizer(texts, return_tensors="pt", padding=True, truncation=True))


def explored_text(model: Any, tokenizer: Any, text: str, draws: int) -> sections.Explored:
    """The text's tokens and the drawn weights of every layer."""
    inputs = encoded(tokenizer, [text])
    names = tuple(tokenizer.convert_ids_to_tokens(inputs["input_ids"][0].tolist()))
    layers = attention_weights(model, inputs, draws, generator=torch.Generator().manual_seed(0))
    short = text if len(text) <= 50 else text[:49] + "…"
    return sections.explored([short], [Portrait(names)], layers)[0]
