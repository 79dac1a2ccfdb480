"""A calibration as a file."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from bayesattn.support import tensor_file

FILE = "calibration.pt"
_KIND = "bayesattn calibration 1"
_PARTS = ("settings", "temperature", "features", "process", "evidence")


def write_state(path: str | Path, calibrated: Any) -> Path:
    """Write the parts of a `CalibratedModel` that were fitted; where to is returned."""
    values = {part: getattr(calibrated, part) for part in _PARTS}
    state: dict[str, Any] = {part: None if value is None else asdict(value) for part, value in values.items()}
    return tensor_file.write(path, FILE, _KIND, state | {"weights": tensor_file.fingerprint(calibrated.model)})


def read_state(path: str | Path) -> dict[str, Any]:
    """What `write_state` wrote."""
    return tensor_file.read(path, FILE, _KIND, (*_PARTS, "weights"), "save() of what ba.calibrate gives")
