"""timm without torchvision.

timm imports torchvision for reading and augmenting images. PyPI has no torchvision that runs with a CPU-only torch, and one
that does not run also breaks transformers. Models need none of it, so while timm is imported, and only then, placeholders
stand in for whatever it asks of torchvision.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import sys
import types

import pytest


class _AnyAttribute(type):
    def __getattr__(cls, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return _AnyAttribute(name, (), {})


class _Module(types.ModuleType):
    __path__: list[str] = []  # noqa: RUF012 (a package)

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return _AnyAttribute(name, (), {})


class _Finder:
    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> importlib.machinery.ModuleSpec | None:
        if name.partition(".")[0] != "torchvision":
            return None
        return importlib.machinery.ModuleSpec(name, _Finder, is_package=True)  # pyright: ignore[reportArgumentType]

    @staticmethod
    def create_module(spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _Module(spec.name)

    @staticmethod
    def exec_module(module: types.ModuleType) -> None:
        pass


def import_timm() -> types.ModuleType:
    """timm, or the test is skipped."""
    if importlib.util.find_spec("timm") is None:
        pytest.skip("timm is not installed: pip install 'bayesattn[timm]'")
    if importlib.util.find_spec("torchvision") is not None:
        return importlib.import_module("timm")
    sys.meta_path.append(_Finder)  # pyright: ignore[reportArgumentType]
    try:
        return importlib.import_module("timm")
    finally:
        sys.meta_path.remove(_Finder)  # pyright: ignore[reportArgumentType]
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
