"""A calibration as a file: plain values and tensors, no class, no code."""

from __future__ import annotations

import io
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bayesattn.support.files import write_atomically

FILE = "calibration.pt"
_KIND = "bayesattn calibration 1"
_PARTS = ("settings", "temperature", "features", "evidence", "weights")


def write_state(path: str | Path, calibrated: Any) -> Path:
    """Write the parts of a `CalibratedModel` that were fitted; where to is returned."""
    target = Path(path) / FILE if Path(path).is_dir() else Path(path)
    state: dict[str, Any] = {"kind": _KIND}
    for part in _PARTS[:-1]:
        value = getattr(calibrated, part)
        state[part] = None if value is None else asdict(value)
    state["weights"] = fingerprint(calibrated.model)
    buffer = io.BytesIO()
    torch.save(state, buffer)
    write_atomically(target, buffer.getvalue())
    return target


def read_state(path: str | Path) -> dict[str, Any]:
    """What `write_state` wrote."""
    source = Path(path) / FILE if Path(path).is_dir() else Path(path)
    if not source.is_file():
        raise FileNotFoundError(f"{str(source)!r} is not there: write it with save() of what ba.calibrate gives.")
    try:
        state = torch.load(source, map_location="cpu", weights_only=True)
    except Exception:  # torch.load raises whatever the damage makes it meet, and advises to switch its safety off
        raise ValueError(
            f"{str(source)!r} cannot be read as a calibration: it is damaged, or something else."
        ) from None
    if not isinstance(state, dict) or state.get("kind") != _KIND or not all(part in state for part in _PARTS):
        raise ValueError(f"{str(source)!r} holds no calibration that this version knows ({_KIND!r}).")
    return state


def fingerprint(model: nn.Module) -> Tensor:
    """Numbers that tell a model's weights from others: for each parameter its size, its sum and its sum of squares."""
    numbers = [
        (float(each.numel()), each.detach().double().sum().item(), each.detach().double().square().sum().item())
        for each in model.parameters()
    ]
    return torch.tensor(numbers, dtype=torch.float64).view(-1, 3)


def weights_of(model: nn.Module, expected: Tensor) -> bool:
    """Whether these are the model's weights. Devices add up in another order: the last digits do not count."""
    found = fingerprint(model)
    if found.shape != expected.shape:
        return False
    scale = (expected[:, :1] * expected[:, 2:]).sqrt()  # a sum is at most √(n Σ w²)
    close = (found[:, :2] - expected[:, :2]).abs() <= 1e-10 * scale + 1e-300
    squares = (found[:, 2] - expected[:, 2]).abs() <= 1e-9 * expected[:, 2]
    return bool(close.all() and squares.all())
