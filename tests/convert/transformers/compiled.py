"""Run by test_huggingface in a process of its own: the shape checks of the test session stand in the compiler's way."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

import bayesattn as ba

sys.path.insert(0, str(Path(__file__).parents[2]))
from helpers.architectures import BY_NAME


def main(name: str) -> None:
    case = BY_NAME[name]
    model = ba.convert(case.build(), ba.Weibull(k=5.0, prior=ba.ContextualGamma()))
    inputs = {**case.inputs(), "use_cache": False} if name != "BERT" else case.inputs()
    results = []
    for function in (model, torch.compile(model, backend="aot_eager", fullgraph=True)):
        torch.manual_seed(1)
        with ba.record() as latents, ba.sampling():
            results.append((function(**inputs).logits, latents.local_kl))
    torch.testing.assert_close(results[0], results[1])


if __name__ == "__main__":
    main(sys.argv[1])
