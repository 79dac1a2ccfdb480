"""A file of plain values and tensors, with a word that says of what: no class, no code."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bayesattn.support.files import write_atomically


def write(path: str | Path, name: str, kind: str, state: dict[str, Any]) -> Path:
    """Write `state` to `path`, or as `name` into it if it is a folder; where to is returned."""
    target = Path(path) / name if Path(path).is_dir() else Path(path)
    buffer = io.BytesIO()
    torch.save({"kind": kind, **state}, buffer)
    write_atomically(target, buffer.getvalue())
    return target


def read(path: str | Path, name: str, kind: str, parts: Sequence[str], made_by: str) -> dict[str, Any]:
    """What `write` wrote, if it is of this kind and has all `parts`; `made_by` says how to get such a file."""
    source = Path(path) / name if Path(path).is_dir() else Path(path)
    if not source.is_file():
        raise FileNotFoundError(f"{str(source)!r} is not there: write it with {made_by}.")
    try:
        state = torch.load(source, map_location="cpu", weights_only=True)
    except Exception:  # torch.load raises whatever the damage makes it meet, and advises to switch its safety off
        raise ValueError(f"{str(source)!r} cannot be read as a {kind}: it is damaged, or something else.") from None
    if not isinstance(state, dict) or state.get("kind") != kind or not all(part in state for part in parts):
        raise ValueError(f"{str(source)!r} holds no {kind} that this version knows.")
    return state


def fingerprint(model: nn.Module) -> Tensor:
    """Numbers that tell a model's weights from others: for each parameter its size, its sum and its sum of squares."""
    numbers = [
        (float(each.numel()), each.detach().double().sum().item(), each.detach().double().square().sum().item())
        for each in model.parameters()
    ]
    return torch.tensor(numbers, dtype=torch.float64).view(-1, 3)


def check_fingerprint(model: nn.Module, expected: Tensor, path: str | Path, remedy: str) -> None:
    """Refuse a model with other weights. Devices add up in another order: the last digits do not count."""
    found = fingerprint(model)
    if found.shape == expected.shape:
        scale = (expected[:, :1] * expected[:, 2:]).sqrt()  # a sum is at most √(n Σ w²)
        close = (found[:, :2] - expected[:, :2]).abs() <= 1e-10 * scale + 1e-300
        squares = (found[:, 2] - expected[:, 2]).abs() <= 1e-9 * expected[:, 2]
        if bool(close.all() and squares.all()):
            return
    raise ValueError(
        f"{str(path)!r} was fitted to other weights than these of {type(model).__name__} (or to another dtype of them): {remedy}."
    )
