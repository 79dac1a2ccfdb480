"""Models and inputs of any kind: how a model is called, and where the batch is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch.utils import _pytree as pytree


def default_output(result: Any) -> Any:
    """The logits, if the model returned something that has them."""
    return result.logits if hasattr(result, "logits") else result


def call(model: nn.Module, inputs: Any) -> Any:
    """The model on inputs of any kind that `predict` takes."""
    inputs = _plain(inputs)
    if isinstance(inputs, dict):
        return model(**inputs)
    return model(*inputs) if isinstance(inputs, (tuple, list)) else model(inputs)


def tokenised(model: nn.Module, inputs: Any, tokenizer: Callable[..., Any] | None) -> Any:
    """What a model takes of texts; inputs of another kind as they are."""
    texts = [inputs] if isinstance(inputs, str) else inputs
    are_texts = isinstance(texts, (list, tuple)) and bool(texts) and all(_is_text(text) for text in texts)
    if tokenizer is None:
        if are_texts:
            raise TypeError("inputs are texts: pass tokenizer=, which makes tensors of them.")
        return inputs
    if not are_texts:
        raise TypeError(
            f"With tokenizer=, inputs must be a text, or a list of texts or of pairs of texts; got {inputs!r:.80}."
        )
    encoded = tokenizer(list(texts), padding=True, truncation=True, return_tensors="pt")
    device = next((weight.device for weight in model.parameters()), None)
    return {name: tensor.to(device) for name, tensor in encoded.items()}


def _is_text(value: Any) -> bool:
    """A text, or a pair of texts."""
    is_pair = isinstance(value, (tuple, list)) and len(value) == 2 and all(isinstance(part, str) for part in value)
    return isinstance(value, str) or is_pair


def tensors_in(inputs: Any) -> list[Tensor]:
    tensors = [leaf for leaf in pytree.tree_leaves(_plain(inputs)) if isinstance(leaf, Tensor)]
    if not tensors:
        raise ValueError(
            f"inputs must be a tensor, or a tuple or dict of tensors, got a {type(inputs).__name__} without any: hand over what the "
            "model is called with; of a DataLoader, one batch after the other."
        )
    return tensors


def batch_size(inputs: Any) -> int:
    sizes = {tensor.shape[0] for tensor in tensors_in(inputs) if tensor.dim()}
    if len(sizes) != 1:
        raise ValueError(
            f"inputs must hold tensors of one batch size, first dimension; found sizes {sorted(sizes) or 'none'}."
        )
    return sizes.pop()


def map_batch(inputs: Any, batch: int, function: Callable[[Tensor], Tensor]) -> Any:
    return pytree.tree_map(
        lambda leaf: function(leaf) if isinstance(leaf, Tensor) and leaf.dim() else leaf, _plain(inputs)
    )


def _plain(inputs: Any) -> Any:
    """A mapping that torch's pytree does not know (Hugging Face's BatchEncoding) as a dict."""
    return {key: inputs[key] for key in inputs} if hasattr(inputs, "keys") and not isinstance(inputs, dict) else inputs
