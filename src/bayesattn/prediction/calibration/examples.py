"""Held-out and training examples: inputs as `predict` takes them, and labels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from bayesattn.prediction.calling import batch_size
from bayesattn.prediction.likelihood import Likelihood

IGNORED = -100
"""The label of a position that does not count: padding, nodes of another split."""


def batches(data: Any, name: str) -> Iterator[tuple[Any, Tensor]]:
    """(inputs, labels), batch by batch; `name` is the argument that messages speak of.

    `data` is one pair (inputs, labels), one mapping with "labels", or anything that gives such batches: a DataLoader, a list.
    """
    found = 0
    for batch in [data] if _is_batch(data) else _iterated(data, name):
        inputs, labels = _pair(batch, name)
        if len(labels) != batch_size(inputs):
            raise ValueError(f"{name}: a batch has {batch_size(inputs)} inputs and {len(labels)} labels.")
        found += len(labels)
        if len(labels):
            yield inputs, labels
    if not found:
        raise ValueError(f"{name} holds no examples.")


def checked_labels(labels: Tensor, output: Tensor, likelihood: Likelihood, name: str) -> Tensor:
    """The labels on the output's device, if they are labels of this output, [batch, ...]; else words about what they should be."""
    labels = labels.to(output.device)
    if likelihood == "categorical":
        if labels.is_floating_point() or labels.dtype == torch.bool or labels.shape != output.shape[:-1]:
            raise ValueError(
                f"{name}: labels of logits {tuple(output.shape)} are whole numbers {tuple(output.shape[:-1])}, got {labels.dtype} "
                f"{tuple(labels.shape)}. If the output is no logits of classes, say likelihood=."
            )
        wrong = (labels != IGNORED) & ((labels < 0) | (labels >= output.shape[-1]))
        if bool(wrong.any()):
            raise ValueError(
                f"{name}: label {int(labels[wrong][0])} is none of the model's {output.shape[-1]} classes; what does not count has the "
                f"label {IGNORED}."
            )
        return labels.long()
    if labels.shape != output.shape and labels.numel() == output.numel() and len(labels) == len(output):
        labels = labels.reshape(output.shape)  # [batch] for an output [batch, 1]
    if labels.shape != output.shape:
        raise ValueError(f"{name}: outputs {tuple(output.shape)} need labels of that shape, got {tuple(labels.shape)}.")
    if not bool(labels.isfinite().all()):
        raise ValueError(
            f"{name}: {int((~labels.isfinite()).sum())} labels are NaN or infinite; leave those examples out."
        )
    if likelihood == "bernoulli" and bool(((labels != 0) & (labels != 1)).any()):
        raise ValueError(f"{name}: labels that hold or not are 1 or 0, got {labels.unique()[:5].tolist()}.")
    return labels.to(output.dtype)


def check_outputs(outputs: tuple[Tensor, ...] | list[Tensor], name: str) -> None:
    """Refuse outputs that no score can be made of; logits may be -inf, of a class that is ruled out."""
    for output in outputs:
        bad = output.isnan() | (output == torch.inf)
        if bool(bad.any()):
            rows = int(bad.reshape(*bad.shape[:2], -1).any(-1).any(0).sum())
            raise ValueError(
                f"{name}: the model gives NaN or infinite outputs for {rows} of {output.shape[1]} examples; nothing can be fitted to "
                "them. Look at these inputs, or at the model's precision."
            )


def _is_batch(data: Any) -> bool:
    if isinstance(data, (tuple, list)):
        return len(data) == 2 and isinstance(data[1], Tensor)
    return isinstance(data, Mapping) or hasattr(data, "keys")


def _iterated(data: Any, name: str) -> Iterator[Any]:
    try:
        yield from data
    except TypeError as problem:
        if "not iterable" not in str(problem):
            raise
        raise TypeError(_wanted(name, data)) from None


def _pair(batch: Any, name: str) -> tuple[Any, Tensor]:
    if not _is_batch(batch):
        raise TypeError(_wanted(name, batch))
    if isinstance(batch, (tuple, list)):
        return batch[0], batch[1]
    if "labels" not in batch:
        raise ValueError(f"{name}: a batch has no 'labels', only {sorted(map(str, batch))}.")
    return {key: batch[key] for key in batch if key != "labels"}, batch["labels"]


def _wanted(name: str, got: Any) -> str:
    return (
        f"{name} must be (inputs, labels), a mapping with 'labels', or batches of those such as a DataLoader gives; got "
        f"{type(got).__name__}."
    )
