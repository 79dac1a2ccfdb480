"""Texts as a pretrained encoder takes them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import torch
from safetensors.torch import load_file, save
from torch import Tensor

from bayesattn.experiments.data.pretrained import minilm
from bayesattn.support.files import user_cache, write_atomically

MINILM = "minilm"


def path_of(model: str) -> str:
    """What `from_pretrained` takes for this name of a model: MiniLM's folder, else the name itself."""
    return str(minilm()) if model == MINILM else model


def encoded(
    model: str, texts: Sequence[str], seconds: Sequence[str] | None, max_length: int, frozen_layers: int, part: str
) -> Tensor:
    """Texts, or pairs, as tokens, [n, 3, length], or as what the lowest layers make of these, [n, length, features].

    That is computed once and kept in the cache, under the name of the `part`.
    """
    path = path_of(model)
    tokens = _tokens(path, texts, seconds, max_length)
    if not frozen_layers:
        return tokens
    from bayesattn.experiments.models.text import frozen

    digest = hashlib.sha256(repr((path, frozen_layers)).encode() + tokens.numpy().tobytes()).hexdigest()[:16]
    kept = user_cache() / "frozen" / f"{part}-{digest}.safetensors"
    if not kept.exists():
        write_atomically(kept, save({"hidden": frozen(path, frozen_layers, tokens)}))
    return load_file(kept)["hidden"]


def lengths(inputs: Tensor) -> Tensor:
    """Of texts as tokens, [n, 3, length], or as what frozen layers made of them, [n, length, features]."""
    return inputs[:, 1].sum(1) if not inputs.is_floating_point() else (inputs != 0).any(-1).sum(1)


def _tokens(path: str, texts: Sequence[str], seconds: Sequence[str] | None, max_length: int) -> Tensor:
    import transformers

    tokenizer: Any = transformers.AutoTokenizer.from_pretrained(path)
    encoding = tokenizer(
        list(texts),
        None if seconds is None else list(seconds),
        truncation=True,
        max_length=max_length,
        padding="longest",
        return_token_type_ids=True,
        return_tensors="pt",
    )
    return torch.stack([encoding["input_ids"], encoding["attention_mask"], encoding["token_type_ids"]], 1)
