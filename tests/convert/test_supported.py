"""The list of what works is the list of what is tested."""

from __future__ import annotations

import subprocess
import sys

import pytest

import bayesattn as ba
from helpers.architectures import CASES


def names(library: str) -> list[str]:
    return [architecture.name for architecture in ba.supported(library)]


def test_the_lists_are_what_the_tests_run() -> None:
    assert names("transformers") == [case.name for case in CASES]
    assert len(names("transformers")) >= 14
    assert names("torch_geometric") == ["GATConv", "GATv2Conv", "TransformerConv"]
    assert len(ba.supported()) == sum(
        len(names(library)) for library in ("torch", "transformers", "timm", "torch_geometric")
    )


def test_timm_is_what_its_tests_run() -> None:
    from helpers.torchvision_stand_in import import_timm

    import_timm()
    import importlib.util
    from pathlib import Path

    spec = importlib.util.spec_from_file_location("timm_cases", Path(__file__).with_name("test_timm.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert names("timm") == list(module.MODELS)


def test_an_unknown_library_is_named() -> None:
    with pytest.raises(ValueError, match=r"library='jax' is not known. Choose one of: 'torch', 'transformers'"):
        ba.supported("jax")


def test_no_extra_is_imported_with_the_library_and_each_may_be_absent() -> None:
    script = """
import sys
for name in ("transformers", "timm", "torch_geometric", "safetensors", "accelerate"):
    sys.modules[name] = None  # as if it were not installed
import torch, bayesattn as ba
model = ba.convert(torch.nn.TransformerEncoderLayer(8, 2, batch_first=True), ba.Weibull(k=5.0))
model(torch.randn(1, 3, 8))
try:
    import bayesattn.huggingface
except ModuleNotFoundError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "bayesattn.huggingface needs Hugging Face transformers: pip install 'bayesattn[hf]'" in done.stdout
