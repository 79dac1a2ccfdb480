"""The Triton kernels against `reference`, in Triton's interpreter: prints, as JSON, what each case differs by.

    TRITON_INTERPRET=1 python interpreted.py softmax:causal:philox weibull:lengths:hash …

Run by test_gpu.py in a process of its own, because Triton decides when it is imported whether it interprets.
"""

from __future__ import annotations

import copy
import json
import sys
from pathlib import Path

import torch

import bayesattn as ba
from bayesattn.kernels import gpu
from bayesattn.kernels.call import Call
from bayesattn.kernels.operator import attention

sys.path.insert(0, str(Path(__file__).parents[1]))  # tests, as pytest has it
from helpers.backend_cases import POSTERIORS, assert_same, hidden, poisoned, results


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(1)
    tensors = (torch.randn(2, 2, 40, 20), torch.randn(2, 1, 70, 20), torch.randn(2, 1, 70, 12))
    mask = torch.rand(2, 1, 40, 70) > 0.2
    mask[0, :, 5] = False
    masks = {
        "causal": {"is_causal": True},
        "boolean": {"attn_mask": mask},
        "lengths": {"key_lengths": torch.tensor([69, 0])},
        "dropout": {"attn_mask": torch.randn(1, 2, 1, 70), "dropout_p": 0.2, "query_mask": torch.rand(2, 40) > 0.3},
    }
    found = {}
    for case in sys.argv[1:]:
        name, kind, noise = case.split(":")
        if kind == "decoding":
            found[case] = decoding(name, noise)
            continue
        posterior, arguments = POSTERIORS[name].bind(num_heads=2, head_dim=20), masks[kind]
        with ba.kernels.use(noise=noise):  # pyright: ignore[reportArgumentType]
            reference = results(posterior, tensors, torch.float64, backend="reference", **arguments)
            ours = results(posterior, tensors, torch.float32, backend="triton", **arguments)
        found[case] = difference(ours, reference)
    for place in ("query", "key", "value", "parameter"):
        found[place] = not_finite(tensors, place)
    found["samples"] = samples(tensors)
    found["explain"] = str(ba.kernels.explain(*tensors, ba.Weibull(), backend="triton"))
    print(json.dumps(found))


def difference(ours: dict[str, torch.Tensor], reference: dict[str, torch.Tensor]) -> str:
    try:
        assert_same(ours, reference)
    except AssertionError as error:
        return str(error)
    return "none"


def not_finite(tensors: tuple[torch.Tensor, ...], place: str) -> str:
    """Which results hide a NaN of `reference`, with a number that is none in one of the inputs."""
    posterior, tensors = poisoned(ba.Gaussian().bind(num_heads=2, head_dim=20), tensors, place, float("nan"))
    reference, ours = (
        results(posterior, tensors, torch.float32, is_causal=True, backend=backend)
        for backend in ("reference", "triton")
    )
    return ", ".join(hidden(ours, reference)) or "none"


def decoding(name: str, noise: str) -> str:
    """Few queries, no KL: the keys shared out over programs, with a row and a whole part that are masked."""
    tensors = (torch.randn(2, 2, 2, 20), torch.randn(2, 1, 260, 20), torch.randn(2, 1, 260, 12))
    allowed = torch.rand(2, 1, 2, 260) > 0.2
    allowed[0, :, 1] = False
    allowed[1, :, :, :192] = False
    posterior = copy.deepcopy(POSTERIORS[name]).bind(num_heads=2, head_dim=20)
    both = []
    parts = gpu._parts
    gpu._parts = lambda call: shared_out.append(parts(call)) or shared_out[-1]
    shared_out: list[int] = []
    for backend, dtype in (("reference", torch.float64), ("triton", torch.float32)):
        torch.manual_seed(1)
        states = [tensor.to(dtype) for tensor in tensors]
        with ba.kernels.use(noise=noise), torch.no_grad(), ba.sampling():  # pyright: ignore[reportArgumentType]
            output = ba.attend(*states, posterior.to(dtype), allowed, dropout_p=0.2, enable_gqa=True, backend=backend)
        both.append({"output": output, "kl": output})
    gpu._parts = parts
    if set(shared_out) != {2}:
        return f"the keys were shared out into {shared_out}, not into 2 parts"
    return difference(both[1], both[0])


def samples(tensors: tuple[torch.Tensor, ...]) -> str:
    """Samples that share a call."""
    found = []
    for backend in ("triton", "chunked"):
        call = Call(
            *tensors, None, None, None, torch.tensor([-5]), torch.full((2, 2, 40), 0.7), None, None,
            0.25, False, "normal", "philox", 0.1, "sum", True, False, 0.0, 3, backend,
        )  # fmt: skip
        found.append(dict(zip(("output", "total", "kl"), attention(*call), strict=True)))
    return difference(*found)


if __name__ == "__main__":
    main()
