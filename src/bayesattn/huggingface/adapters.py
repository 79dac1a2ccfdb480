"""PEFT with a converted model: the posteriors are trained with the adapter, and kept in its folder."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from torch import nn

from bayesattn.convert.transformers.peft import FILE, PARTS, remember_to_save
from bayesattn.huggingface.saving import convert_as_saved
from bayesattn.support import json_text


def get_peft_model(model: Any, peft_config: Any, **kwargs: Any) -> Any:
    """`peft.get_peft_model` for a converted model: its posteriors stay trainable, and are saved with the adapter.

    The other order works too: `ba.convert` of a model that PEFT has wrapped. So does `modules_to_save=["posterior"]` without this
    function, but for `load_adapter`, which needs the file that `save_pretrained` then does not write.

    Args:
        model: a model that `ba.convert` has converted.
        peft_config: PEFT's, such as `peft.LoraConfig(...)`; the posteriors are added to a copy's `modules_to_save`.
        kwargs: passed on to `peft.get_peft_model`.
    """
    import peft

    parts = [name for name in PARTS if any(_has_parameters(layer, name) for layer in model.modules())]
    if getattr(getattr(model, "config", None), "bayesattn", None) is None:
        raise ValueError(
            f"{type(model).__name__} is not converted: call ba.convert first, or afterwards on PEFT's model."
        )
    if parts and not hasattr(peft_config, "modules_to_save"):
        raise ValueError(
            f"{type(peft_config).__name__} has no modules_to_save, so the posteriors' parameters would be frozen and lost: use LoRA or "
            "another method that changes layers, or a posterior without parameters such as ba.Weibull(k=10.0)."
        )
    if parts:
        peft_config = copy.copy(peft_config)
        peft_config.modules_to_save = [*(peft_config.modules_to_save or []), *parts]
    wrapped: Any = peft.get_peft_model(model, peft_config, **kwargs)
    remember_to_save(wrapped)
    return wrapped


def load_adapter(model: Any, path: str | Path, **kwargs: Any) -> Any:
    """The PEFT model of an adapter's folder, converted as it was, on a base model that need not be converted.

    Args:
        model: the base model, as it was before `ba.convert` and PEFT.
        path: what the PEFT model's `save_pretrained` wrote.
        kwargs: passed on to `peft.PeftModel.from_pretrained`: `is_trainable` and the like.
    """
    import peft

    file = Path(path) / FILE
    if not file.is_file():
        raise ValueError(
            f"{str(path)!r} holds no converted adapter: it has no {FILE}. Convert the base model as it was converted, and load the folder "
            "with peft.PeftModel.from_pretrained; or save the adapter again from bayesattn.huggingface.get_peft_model."
        )
    described = json_text.read(file)
    layers = described.get("layers") if isinstance(described, dict) else None
    if not isinstance(layers, dict) or not layers:
        raise ValueError(f"{file} is damaged: 'layers' must say the posterior of each layer.")
    if getattr(model.config, "bayesattn", None) is None:
        convert_as_saved(model, layers)
    try:
        wrapped: Any = peft.PeftModel.from_pretrained(model, str(path), **kwargs)
    except KeyError as missing:  # all that PEFT says of what its file lacks
        raise ValueError(_lacking(path, missing.args[0])) from missing
    for name, _ in wrapped.named_parameters():
        if any(f".{part}." in name for part in PARTS) and not any(f".{each}." in name for each in _OF_ADAPTERS):
            raise ValueError(_lacking(path, name))
    remember_to_save(wrapped)
    return wrapped


_OF_ADAPTERS = ("original_module", "modules_to_save")
"""PEFT's names for a module as it was, and for the copies of the adapters."""


def _lacking(path: str | Path, name: str) -> str:
    return (
        f"The adapter in {str(path)!r} lacks parameters of its posteriors, the first is {name!r}: it was saved without them. Train it with "
        "bayesattn.huggingface.get_peft_model, or with modules_to_save=['posterior']."
    )


def _has_parameters(layer: nn.Module, name: str) -> bool:
    part = layer._modules.get(name)
    return part is not None and next(part.parameters(), None) is not None
