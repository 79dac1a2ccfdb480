"""What the backends are compared by: posteriors, everything that attention gives, and when two results are the same."""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
from torch import Tensor

import bayesattn as ba
from bayesattn.numerics.precision import compute_dtype

POSTERIORS: dict[str, ba.Posterior] = {
    "softmax": ba.Softmax(),
    "weibull": ba.Weibull(2.0),
    "weibull-raw": ba.Weibull(2.0, kl_scores="raw"),
    "weibull-learnable": ba.Weibull(3.0, ba.GammaPrior(0.5, 2.0, learnable=True)),
    "weibull-contextual": ba.Weibull(3.0, ba.ContextualGamma(0.5)),
    "weibull-contextual-raw": ba.Weibull(3.0, ba.ContextualGamma(5.0), kl_scores="raw"),
    "lognormal": ba.LogNormal(0.5),
    "lognormal-learnable": ba.LogNormal(0.5, ba.LogNormalPrior(-1.0, 2.0, learnable=True), kl_scores="raw"),
    "lognormal-contextual": ba.LogNormal(0.5, ba.ContextualLogNormal()),
    "lognormal-share": ba.LogNormal(0.5, ba.ContextualLogNormal(location="share"), kl_scores="raw"),
    "gaussian": ba.Gaussian(initial_sigma=0.7),
    "dirichlet": ba.Dirichlet(prior_concentration=0.7, initial_sharpness=20.0),
    "dirichlet-simplex": ba.Dirichlet(initial_sharpness=5.0, kl_form="dirichlet"),
    "dirichlet-positions": ba.Dirichlet(initial_sharpness=5.0, max_len=400),
}


def results(
    posterior: ba.Posterior, tensors: tuple[Tensor, ...], dtype: torch.dtype, seed: int = 3, **arguments: Any
) -> dict[str, Tensor]:
    """Everything that attention gives, by name: output, KL, counts, and the gradients of a function of output and KL.

    The parameters of the posterior are float32 where the tensors have 16 bits.
    """
    posterior = copy.deepcopy(posterior).to(compute_dtype(dtype))
    leaves = [tensor.detach().to(dtype).requires_grad_() for tensor in tensors]
    torch.manual_seed(seed)
    with ba.record() as latents:
        output = ba.attend(*leaves, posterior, enable_gqa=True, **arguments)
    assert isinstance(output, Tensor)
    batch, features = output.shape[0], output.shape[-1]
    loss = (output * torch.linspace(-1.0, 1.0, features)).sum() + (latents.local_kl * torch.arange(1, batch + 1)).sum()
    # the bias of the last layer moves all logits of a softmax together: its gradient is 0
    named = {name: p for name, p in posterior.named_parameters() if not name.endswith("outer.bias")}
    gradients = torch.autograd.grad(loss, [*leaves, *named.values()], allow_unused=True)
    found = dict(zip(["query", "key", "value", *named], gradients, strict=True))
    term = latents.local_terms[0]
    counts = {"elements": term.elements, "rows": term.rows, "tokens": term.tokens}
    everything = {"output": output, "kl": term.kl, **counts, **{k: g for k, g in found.items() if g is not None}}
    return {name: tensor.detach() for name, tensor in everything.items()}


NOT_FINITE = (math.nan, math.inf, -math.inf)


def poisoned(
    posterior: ba.Posterior, tensors: tuple[Tensor, ...], place: str, value: float
) -> tuple[ba.Posterior, tuple[Tensor, ...]]:
    """A posterior and tensors with this value in the middle of one of them: query, key, value, or a parameter if there is one."""
    posterior, tensors = copy.deepcopy(posterior), tuple(tensor.clone() for tensor in tensors)
    parameters = [each.detach() for each in posterior.parameters() if each.numel()]
    if place != "parameter" or parameters:
        target = parameters[0] if place == "parameter" else tensors[["query", "key", "value"].index(place)]
        target.view(-1)[target.numel() // 2] = value
    return posterior, tensors


def hidden(ours: dict[str, Tensor], reference: dict[str, Tensor]) -> list[str]:
    """The results that have numbers where `reference` has NaN."""
    return [name for name, expected in reference.items() if (ours[name].isfinite() & expected.isnan()).any()]


def assert_same(ours: dict[str, Tensor], reference: dict[str, Tensor]) -> None:
    assert ours.keys() == reference.keys()
    # the network's gradients cancel in a softmax, wholly in a row of one key: they are measured by the largest of them and
    # by float32's rounding of the KL whose terms cancel
    network = [float(value.abs().max()) for name, value in reference.items() if "network" in name]
    rounding = 0.01 * float(reference["kl"].abs().max())
    for name, expected in reference.items():
        scale = max(*network, rounding) if "network" in name else float(expected.abs().max())
        difference = float((ours[name] - expected).abs().max())
        assert difference < 1e-4 * scale + 1e-5, f"{name}: {difference:.2g} of {scale:.2g}"


TOLERANCES = {torch.bfloat16: 2**-7, torch.float16: 2**-10}
"""Of the largest number of the output: two roundings of a number of 8, or 11, bits. Gradients have twice that, the KL float32's."""


def assert_near(ours: dict[str, Tensor], reference: dict[str, Tensor], dtype: torch.dtype) -> None:
    """The results in 16 bits against `reference` in float64, of the same rounded inputs."""
    for name in ("output", "kl", "query", "key", "value"):
        expected = reference[name]
        if dtype == torch.float16 and name != "kl":  # its gradients stop at its largest number
            expected = expected.clamp(-65504, 65504)
        scale = float(expected.abs().max())
        tolerance = {"kl": 1e-4, "output": TOLERANCES[dtype]}.get(name, 2 * TOLERANCES[dtype])
        assert ours[name].dtype == (torch.float32 if name == "kl" else dtype)
        difference = float((ours[name].double() - expected).abs().max())
        assert difference < tolerance * scale + 1e-5, f"{name}: {difference:.2g} of {scale:.2g}"
