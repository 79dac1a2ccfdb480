"""Objects that are their constructor's arguments: to JSON and back, and printed as they were written."""

from __future__ import annotations

import inspect
from typing import Any, ClassVar, TypeVar

from bayesattn.support import checks

Class = TypeVar("Class", bound=type["Configurable"])
DEEPEST = 32
"""How deep a config may be nested; a posterior with a prior is nested once."""


class Configurable:
    """Keeps every constructor argument under its own name, so that `config()` can give it back.

    A class registered with `@register` can be made again from its config by `from_config`, with no pickle.
    """

    registry: ClassVar[dict[str, type[Configurable]]] = {}

    def hyper_parameters(self) -> dict[str, Any]:
        """The constructor's arguments and their values."""
        names = list(inspect.signature(type(self).__init__).parameters)[1:]
        return {name: getattr(self, name) for name in names}

    def config(self) -> dict[str, Any]:
        """A JSON-ready description: the class's name and its arguments."""
        described: dict[str, Any] = {"class": type(self).__name__}
        for name, value in self.hyper_parameters().items():
            described[name] = value.config() if isinstance(value, Configurable) else value
        return described

    def extra_repr(self) -> str:
        """The plain arguments, for the printed form of a module; parts that are modules print themselves."""
        plain = {name: value for name, value in self.hyper_parameters().items() if not isinstance(value, Configurable)}
        return ", ".join(f"{name}={value!r}" for name, value in plain.items())


def register(cls: Class) -> Class:
    """Make a class known to `from_config` under its own name."""
    Configurable.registry[cls.__name__] = cls
    return cls


def from_config(config: dict[str, Any]) -> Any:
    """The object that `config()` described.

    >>> import bayesattn as ba
    >>> ba.from_config(ba.Weibull(k=5.0).config()).k
    5.0
    """
    return _made(config, 0)


def _made(config: dict[str, Any], depth: int) -> Any:
    if depth > DEEPEST:
        raise ValueError(f"config is nested more than {DEEPEST} deep, which no config() is: is the file damaged?")
    if not isinstance(config, dict) or "class" not in config:
        raise ValueError(f"config must be a dict with a 'class' entry, as config() gives it; got {config!r}.")
    name = config["class"]
    cls = Configurable.registry[checks.one_of("class", name, Configurable.registry)]
    arguments = {key: _made(value, depth + 1) if isinstance(value, dict) else value for key, value in config.items()}
    del arguments["class"]
    known = list(inspect.signature(cls.__init__).parameters)[1:]
    for key in arguments:
        if key not in known:
            raise ValueError(f"{name} has no argument {key!r}. {checks.suggestion(key, known)}")
    return cls(**arguments)
