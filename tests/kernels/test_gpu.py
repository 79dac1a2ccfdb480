"""The Triton kernels: the same numbers as `reference` in Triton's interpreter, and code for a GPU from Triton's compiler."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

import bayesattn as ba
from bayesattn.kernels import choice, gpu
from helpers.backend_cases import POSTERIORS

TRITON = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="triton is not installed: pip install --no-deps triton"
)
HERE = Path(__file__).parent


FEW = ("weibull:lengths:philox", "gaussian:dropout:hash", "weibull:decoding:hash")
MASKS, GENERATORS = ("causal", "boolean", "lengths", "dropout"), ("philox", "hash")
MANY = [
    f"{name}:{MASKS[(place + step) % 4]}:{GENERATORS[(place // 2 + step) % 2]}"
    for place, name in enumerate(sorted(POSTERIORS))
    for step in range(3)
    if name not in ("softmax", "dirichlet-positions")  # torch's own dropout
] + [
    "softmax:causal:philox",
    "gaussian:decoding:philox",
    "dirichlet:decoding:philox",
    "dirichlet-positions:causal:hash",
]


def run(script: str, *arguments: str, interpret: bool = False) -> dict[str, str]:
    """What a script beside this one prints."""
    environment = os.environ | {"TRITON_INTERPRET": str(int(interpret))}
    command = [sys.executable, str(HERE / script), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@TRITON
@pytest.mark.parametrize("cases", [FEW, pytest.param(MANY, marks=pytest.mark.slow)], ids=["few", "many"])
def test_the_interpreted_kernels_give_what_reference_gives(cases: Sequence[str]) -> None:
    found = run("interpreted.py", *cases, interpret=True)
    assert found.pop("explain") == "triton: asked for"
    assert found == dict.fromkeys([*cases, "query", "key", "value", "parameter", "samples"], "none")


@TRITON
@pytest.mark.slow
def test_triton_compiles_every_kernel_for_a_gpu() -> None:
    """Down to the machine code of an NVIDIA A100, which needs none; and into its shared memory of 163 KiB."""
    shared = run("compiled_for_gpu.py")
    assert len(shared) == 7
    assert all(int(size) <= gpu.SHARED_BYTES[128] for size in shared.values()), shared


class TestChoice:
    """No GPU is here: a stand-in says that it is one, and nothing is computed."""

    class OnGpu:
        def __init__(self, like: torch.Tensor, **changes: object):
            self.shape, self.dtype, self.device, self.requires_grad = (
                like.shape,
                like.dtype,
                torch.device("cuda", 0),
                False,
            )
            self.__dict__.update(changes)

    @pytest.fixture(autouse=True)
    def _gpu(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(gpu, "_is_installed", lambda: True)
        monkeypatch.setattr(gpu, "_shared_bytes", lambda device: 166_000)

    @staticmethod
    def choose(large: object, backend: str = "auto") -> choice.Choice:
        return choice.choose(backend, large, large, large, ba.Weibull())  # pyright: ignore[reportArgumentType]

    LARGE = torch.zeros(1, 2, 1500, 64)

    @pytest.mark.usefixtures("unchecked")
    def test_auto_takes_triton_on_a_gpu(self) -> None:
        found = self.choose(self.OnGpu(self.LARGE))
        assert found.backend == "triton"
        assert "4,500,000 pairs" in found.reason

    @pytest.mark.usefixtures("unchecked")
    def test_without_triton_it_is_chunked_and_says_so(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(gpu, "_is_installed", lambda: False)
        found = self.choose(self.OnGpu(self.LARGE))
        assert found.backend == "chunked"
        assert "triton is not installed" in found.reason

    @pytest.mark.usefixtures("unchecked")
    @pytest.mark.parametrize(
        ("size", "shared", "fits"), [(128, 166_000, True), (128, 101_376, False), (160, 166_000, False)]
    )
    def test_heads_that_do_not_fit(self, monkeypatch: pytest.MonkeyPatch, size: int, shared: int, fits: bool) -> None:
        monkeypatch.setattr(gpu, "_shared_bytes", lambda device: shared)
        found = self.choose(self.OnGpu(torch.zeros(1, 2, 1500, size)))
        assert found.backend == ("triton" if fits else "chunked")
        assert fits or f"heads of {size} features" in found.reason

    def test_on_the_cpu_it_says_where_triton_runs(self) -> None:
        found = self.choose(self.LARGE, "triton")
        assert found.backend == "chunked"
        assert found.reason.startswith("triton was asked for, but triton runs on a GPU, these tensors are on cpu")
