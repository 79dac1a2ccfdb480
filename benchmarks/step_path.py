"""The way through a training step: how many files of the library one step of a converted model touches, and how often
it changes file.

    python benchmarks/step_path.py [--output results/step_path.json]

A one-layer BERT with a Weibull posterior and its contextual prior: record, forward pass, ELBO, backward pass.
`sys.setprofile` sees every call of a Python function of the library; a change of file is a call whose function stands in
another file than that of the call before. Short texts run on `reference`, long ones on the compiled kernel.
"""

from __future__ import annotations

import argparse
import itertools
import json
import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import torch
import transformers

import bayesattn as ba

LIBRARY = Path(ba.__file__).parent
LENGTHS = {"reference": 16, "native": 128}


def training_step(length: int) -> Callable[[], None]:
    """One training step of a converted one-layer BERT on four texts of `length` tokens, one of them padded."""
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 64}
    model: Any = transformers.BertModel(transformers.BertConfig(vocab_size=50, **sizes))
    ba.convert(model, ba.Weibull(k=10.0, prior=ba.ContextualGamma())).train()
    tokens = torch.randint(0, 50, (4, length))
    mask = torch.ones_like(tokens)
    mask[0, -2:] = 0

    def step() -> None:
        with ba.record() as latents:
            states = model(tokens, attention_mask=mask).last_hidden_state
        ba.elbo(states.square().mean((1, 2)), latents, kl_weight=1e-4).backward()

    return step


def files_called(step: Callable[[], None]) -> list[str]:
    """The file of every call of a function of the library in `step`, in order; what happens once alone is over before."""
    step()
    files: list[str] = []

    def look(frame: FrameType, event: str, _: Any) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(LIBRARY):
            files.append(path.relative_to(LIBRARY).as_posix())

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        step()
    finally:
        sys.setprofile(before)
    return files


def count(files: list[str]) -> dict[str, int]:
    """Files, and changes of file."""
    changes = sum(one != other for one, other in itertools.pairwise(files))
    return {"files": len(set(files)), "changes of file": changes}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("results/step_path.json"))
    output = parser.parse_args().output
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    found: dict[str, Any] = {
        "commit": commit.stdout.strip(),
        "machine": platform.processor() or platform.machine(),
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        },
    }
    for backend, length in LENGTHS.items():
        found[backend] = {"tokens": length, **count(files_called(training_step(length)))}
        print(backend, found[backend])
    output.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
