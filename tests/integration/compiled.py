"""Run by test_compile in a process of its own: the shape checks of the test session stand in the compiler's way."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch._dynamo
import torch._inductor.config

sys.path.insert(0, str(Path(__file__).parents[1]))  # tests, as pytest has it
from helpers.training_steps import POSTERIORS, build, data, gradients, step


def main(backend: str, names: list[str]) -> None:
    torch._inductor.config.fallback_random = True  # the compiler's own random numbers are others
    for name in names:
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        plain, compiled = build(POSTERIORS[name]), build(POSTERIORS[name])
        compiled.compile(backend=backend, fullgraph=True)
        x, padding = data()
        for seed in (1, 2):  # the second step runs what the first compiled
            for model in (plain, compiled):
                model.zero_grad()
            expected, kl = step(plain, x, padding, seed)
            loss, compiled_kl = step(compiled, x, padding, seed)
            assert torch.allclose(loss, expected, rtol=1e-5), (name, loss, expected)
            assert torch.allclose(compiled_kl, kl, rtol=1e-5), (name, compiled_kl, kl)
            mine = gradients(compiled)
            for parameter, gradient in gradients(plain).items():
                scale = gradient.abs().max().clamp_min(1e-6)
                assert (mine[parameter] - gradient).abs().max() <= 1e-4 * scale + 1e-5, (name, parameter)
        graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
        assert graphs == 1, f"{name} was compiled {graphs} times"


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
