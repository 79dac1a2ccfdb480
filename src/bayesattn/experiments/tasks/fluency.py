"""How fluent texts are to a pretrained language model that has seen neither them nor the data."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch

from bayesattn.experiments.data.pretrained import smollm2


def perplexity(texts: Sequence[str], batch_size: int = 16) -> float:
    """exp of the mean negative log p of a token of SmolLM2-135M-Instruct, after its start token."""
    model, tokenizer = _smollm2()
    total, count = 0.0, 0
    for start in range(0, len(texts), batch_size):
        batch = [text or " " for text in texts[start : start + batch_size]]
        tokens = tokenizer([tokenizer.bos_token + text for text in batch], padding=True, return_tensors="pt")
        there = tokens["attention_mask"][:, 1:].bool()
        with torch.no_grad():
            logits = model(**tokens).logits[:, :-1].float()
        log_prob = logits.log_softmax(-1).gather(-1, tokens["input_ids"][:, 1:, None]).squeeze(-1)
        total -= log_prob[there].sum().item()
        count += int(there.sum())
    return float(torch.tensor(total / count).exp())


@lru_cache(maxsize=1)
def _smollm2() -> tuple[Any, Any]:
    import transformers

    folder, file = smollm2()
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, gguf_file=file, dtype=torch.float32).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, gguf_file=file, padding_side="right")
    return model, tokenizer
