"""PEFT: posteriors are a part of the adapter. They are trained with it, written into its folder and read from there.

PEFT freezes what is not its own, and writes nothing else; what it must train and write besides it wraps (`modules_to_save`), a copy for
each adapter. `posterior_of` (`convert.attach`) finds the copy that is active.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from bayesattn.nvib import NVIB
from bayesattn.posteriors import Posterior
from bayesattn.support.files import write_atomically

FILE = "bayesattn.json"
"""In an adapter's folder: what was converted to what."""
PARTS = ("posterior", "nvib")
"""The attributes that hold what a layer was converted to."""


def adopt_posteriors(model: nn.Module) -> None:
    """Make the posteriors in every PEFT model in `model` a part of its active adapter, as `modules_to_save` does."""
    peft: Any = sys.modules.get("peft")
    if peft is None:
        return
    models: list[Any] = [module for module in model.modules() if isinstance(module, peft.PeftModel)]
    for wrapped in models:
        adapter = wrapped.active_adapter
        config = wrapped.peft_config[adapter]
        found = [
            (layer, name, part)
            for layer in list(wrapped.modules())
            for name in PARTS
            if isinstance(part := layer._modules.get(name), (Posterior, NVIB))
        ]
        found = [each for each in found if next(each[2].parameters(), None) is not None]
        if found and not hasattr(config, "modules_to_save"):
            raise ValueError(
                f"{type(config).__name__} has no modules_to_save, so the posteriors' parameters would be lost with the adapter: use LoRA "
                "or another method that changes layers, or a posterior without parameters such as ba.Weibull(k=10.0)."
            )
        for layer, name, part in found:
            copies = peft.utils.ModulesToSaveWrapper(part, adapter)
            setattr(layer, name, copies)
            copies.set_adapter([adapter])
            config.modules_to_save = sorted({*(config.modules_to_save or []), name})
        remember_to_save(wrapped)


def remember_to_save(wrapped: nn.Module) -> None:
    """Let a PEFT model's `save_pretrained` write what was converted beside the adapter."""
    wrapped.__dict__["save_pretrained"] = partial(_save, wrapped)


def _save(wrapped: Any, save_directory: str | Path, *args: Any, **kwargs: Any) -> None:
    type(wrapped).save_pretrained(wrapped, str(save_directory), *args, **kwargs)
    described = getattr(wrapped.get_base_model().config, "bayesattn", None)
    if described is not None and kwargs.get("is_main_process", True):
        write_atomically(Path(save_directory) / FILE, json.dumps(described, indent=2) + "\n")
