"""The package: torch is all that the core needs, and what it offers is there."""

from __future__ import annotations

import importlib.metadata
import importlib.resources
import subprocess
import sys

import bayesattn as ba

WITHOUT_EXTRAS = """
import sys
for name in {blocked!r}:
    sys.modules[name] = None  # as if it were not installed
import torch, bayesattn as ba
layer = torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
model = ba.convert(torch.nn.TransformerEncoder(layer, 1), ba.Weibull(2.0, ba.ContextualGamma()))
x = torch.randn(2, 3, 8)
with ba.record() as latents:
    output = model(x)
ba.elbo(output.square().mean((1, 2)), latents).backward()
prediction = ba.predict(model, x, samples=4)
print(round(prediction.mean.sum().item(), 3))
"""


def test_the_core_needs_torch_alone() -> None:
    required = [name for name in importlib.metadata.requires("bayesattn") or [] if "extra ==" not in name]
    assert [name.split(">")[0] for name in required] == ["torch"]
    extras = ["beartype", "jaxtyping", "matplotlib", "rich", "scipy", "sklearn", "torchmetrics", "transformers", "tyro"]
    script = WITHOUT_EXTRAS.format(blocked=extras)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "6.0", "three probabilities for each of two examples"


def test_everything_that_is_offered_is_there_and_typed() -> None:
    assert all(hasattr(ba, name) for name in ba.__all__)
    assert importlib.resources.files("bayesattn").joinpath("py.typed").is_file()
    assert ba.__version__ == importlib.metadata.version("bayesattn")


def test_the_house_stays_small() -> None:
    shown = [each for each in importlib.resources.files("bayesattn").iterdir() if each.name != "__pycache__"]
    assert sum(each.name.endswith(".py") for each in shown) <= 8
    assert sum(each.is_dir() for each in shown) <= 14
