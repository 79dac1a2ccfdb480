"""Loading a converted model that `save_pretrained` has written.

Conversion writes the posteriors' configuration into `config.bayesattn`, and their parameters are parameters of the model: so
transformers' own `save_pretrained` (and the Trainer's checkpoints) hold everything, as JSON and safetensors. A plain
`from_pretrained` of the same folder gives the deterministic model.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import nn
from transformers import AutoConfig, PreTrainedModel

from bayesattn.convert import convert
from bayesattn.support import json_text
from bayesattn.support.configurable import from_config


def from_pretrained(cls: Any, path: str | Path, **kwargs: Any) -> Any:
    """A converted model from a folder (or the Hub), as it was saved.

    Args:
        cls: the model's class, or one of transformers' Auto classes.
        path: what `model.save_pretrained(path)` wrote.
        kwargs: passed on to `cls.from_pretrained`: dtype, device_map and the like.

    >>> import tempfile, transformers, bayesattn as ba
    >>> from bayesattn.huggingface import from_pretrained
    >>> config = transformers.BertConfig(
    ...     hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    ... )
    >>> model = ba.convert(transformers.BertModel(config), ba.Weibull(k=20.0))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model.save_pretrained(folder)
    ...     loaded = from_pretrained(transformers.BertModel, folder)
    >>> loaded.encoder.layer[0].attention.self.posterior.k
    20.0
    """
    with _naming(path):
        config = kwargs.pop("config", None) or _config(path)
        layers = _layers(config, cls, path)
        concrete = cls if issubclass(cls, PreTrainedModel) else _resolve(cls, config)
        model, info = _converting_class(concrete, layers).from_pretrained(
            path, config=config, output_loading_info=True, **kwargs
        )
    model.__class__ = concrete
    missing = sorted(key for key in info["missing_keys"] if ".posterior." in key or ".nvib." in key)
    if missing:
        raise ValueError(
            f"{str(path)!r} lacks {len(missing)} parameters of its posteriors, the first is {missing[0]!r}: it was saved after the "
            "conversion was lost. Save it again from the converted model."
        )
    return model


@contextmanager
def _naming(path: str | Path) -> Iterator[None]:
    """What a damaged or foreign file makes transformers say, with the name of what was loaded."""
    try:
        yield
    except (OSError, ImportError):
        raise  # not found, not available, not installed: transformers says which
    except Exception as problem:
        if isinstance(problem, ValueError) and str(path) in str(problem):
            raise
        words = str(problem).strip().partition("\n")[0][:500]
        raise ValueError(f"{str(path)!r} cannot be loaded ({type(problem).__name__}: {words}).") from problem


def _config(path: str | Path) -> Any:
    """The model's config; a file that is no JSON is noticed here, where it can be named."""
    file = Path(path) / "config.json"
    if file.is_file() and not isinstance(json_text.read(file), dict):
        raise ValueError(f"{file} must hold a JSON object.")
    return AutoConfig.from_pretrained(path)


def _layers(config: Any, cls: Any, path: str | Path) -> dict[str, dict[str, Any]]:
    """The converted layers, by name, that the config tells of."""
    entry = getattr(config, "bayesattn", None)
    if not entry:
        raise ValueError(
            f"{str(path)!r} holds no converted model: its config.json has no 'bayesattn' entry. Load it with "
            f"{cls.__name__}.from_pretrained, convert it with ba.convert, and save it with save_pretrained."
        )
    layers = entry.get("layers") if isinstance(entry, dict) else None
    if not isinstance(layers, dict) or not layers or not all(isinstance(each, dict) for each in layers.values()):
        raise ValueError(
            f"{str(path)!r}: the 'bayesattn' entry of its config.json is damaged: 'layers' must say the posterior of each layer."
        )
    return layers


def _resolve(auto: Any, config: Any) -> type[PreTrainedModel]:
    """The class that an Auto class would choose."""
    chosen = auto._model_mapping[type(config)]
    if not isinstance(chosen, (list, tuple)):
        return chosen
    named = {candidate.__name__: candidate for candidate in chosen}
    return next((named[name] for name in config.architectures or [] if name in named), chosen[0])


def _converting_class(cls: type[PreTrainedModel], layers: dict[str, Any]) -> Any:
    """`cls`, converted as soon as it is made: transformers then loads the posteriors' parameters like any others."""

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        cls.__init__(self, *args, **kwargs)
        convert_as_saved(self, layers)

    return type(cls.__name__, (cls,), {"__init__": __init__, "__module__": cls.__module__, "__doc__": cls.__doc__})


def convert_as_saved(model: PreTrainedModel, layers: dict[str, Any]) -> None:
    """Convert a model as the `layers` of a config, or of an adapter, say."""
    present = {name for name, _ in model.named_modules()}
    names_by_posterior: dict[str, list[str]] = defaultdict(list)
    for name, described in layers.items():
        found = _name_in(present, name, model)
        if found is not None:
            names_by_posterior[json.dumps(described)].append(found)
    if not names_by_posterior:
        raise ValueError(
            f"{type(model).__name__} has none of the converted layers that the config names, such as {next(iter(layers))!r}."
        )
    for described, names in names_by_posterior.items():
        convert(model, from_config(json.loads(described)), where=names)


def _name_in(present: set[str], name: str, model: nn.Module) -> str | None:
    """A layer's name in this model, which may have, or lack, the head around the body that was saved."""
    prefix = f"{model.base_model_prefix}."
    candidates = (name, prefix + name, name.removeprefix(prefix))
    return next((candidate for candidate in candidates if candidate in present), None)
