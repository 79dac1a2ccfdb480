"""Memory linear in the length: a training step over 16,384 positions, whose scores alone would take 8 GiB, in less than 2 GB."""

from __future__ import annotations

import subprocess
import sys

import pytest

from bayesattn.kernels import native

STEP = """
import sys
from pathlib import Path
import torch, bayesattn as ba

backend, heads, length = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
torch.set_num_threads(1)

def status(field):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) * 1024

def step(length, posterior):
    q, k, v = (torch.randn(1, heads, length, 64, requires_grad=True) for _ in range(3))
    before = status("VmRSS")
    with ba.record() as latents:
        output = ba.attend(q, k, v, posterior, backend=backend)
    (output.square().sum() + latents.local_kl.sum()).backward()
    assert all(bool(x.grad.isfinite().all()) for x in (q, k, v))
    return before

posterior = ba.Weibull(10.0, ba.ContextualGamma(0.5)).bind(num_heads=heads, head_dim=64)
step(128, posterior)
Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
before = step(length, posterior)
print(status("VmHWM") - before)
"""


def extra_bytes(backend: str, heads: int, length: int) -> int:
    command = [sys.executable, "-c", STEP, backend, str(heads), str(length)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is read from /proc")
@pytest.mark.parametrize(
    ("backend", "heads"),
    [
        pytest.param("native", 8, marks=pytest.mark.skipif(native.library().functions is None, reason="no compiler")),
        ("chunked", 1),
    ],
)
def test_sixteen_thousand_positions_train_in_two_gigabytes(backend: str, heads: int) -> None:
    extra = extra_bytes(backend, heads, 16_384)
    inputs = 3 * heads * 16_384 * 64 * 4
    assert inputs < extra < 2e9, f"{extra / 1e6:.0f} MB"
