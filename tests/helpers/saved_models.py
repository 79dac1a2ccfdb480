"""Tiny Hugging Face models in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import bayesattn as ba

WORDS = ("[PAD]", "[UNK]", "good", "bad", "film")


def save_classifier(
    folder: Path, kind: str = "BertForSequenceClassification", tokenizer: bool = True, **config: Any
) -> Any:
    """A converted model of random weights, of two layers with two heads, with a tokenizer of whole words."""
    transformers = pytest.importorskip("transformers")
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace

    if tokenizer:
        backend = Tokenizer(WordLevel({word: place for place, word in enumerate(WORDS)}, "[UNK]"))
        backend.pre_tokenizer = Whitespace()  # pyright: ignore[reportAttributeAccessIssue]
        fast = transformers.PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="[PAD]", unk_token="[UNK]")
        fast.save_pretrained(folder)
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
    model = getattr(transformers, kind)(transformers.BertConfig(vocab_size=len(WORDS), **sizes | config))
    ba.convert(model, ba.Weibull(k=2.0)).save_pretrained(folder)
    return model
