"""Mean-field variational inference: every weight has a distribution of its own."""

from __future__ import annotations

from typing import Literal, TypeVar

import torch
from torch import Tensor, nn

from bayesattn.numerics.positive import THESIS_START, inverse_softplus
from bayesattn.support import checks
from bayesattn.weight_space.families import Family, family_by_name
from bayesattn.weight_space.layers import SMALLEST_DF, RandomParameters, WeightPosterior, call_every_part, randomise
from bayesattn.weight_space.priors import Priors, WeightPrior, prior_of
from bayesattn.weight_space.selection import Where, choose_layers

Model = TypeVar("Model", bound=nn.Module)
Start = Literal["thesis", "model"]


def mean_field(
    model: Model,
    family: str = "gaussian",
    prior: Priors | None = None,
    *,
    where: Where = None,
    start: Start = "thesis",
    initial_scale: float = THESIS_START,
    relative_scale: float | None = None,
    initial_df: float = 5.0,
    centre_prior: bool = False,
    kl_samples: int = 1,
) -> Model:
    """Make the weights of `model` random variables, in place, and return the model.

    Each parameter θ becomes θ = location + scale · noise, with noise of one family; the location is the parameter itself, the scale
    is learned beside it. Train with `ba.elbo(nll, latents, dataset_size=...)`; predict with `ba.predict`.

    Args:
        model: any module. Linear layers, convolutions and multi-head attention draw their outputs in place of their weights while
            training (local reparameterisation) where the family allows it: "gaussian" and "cauchy".
        family: "gaussian", "laplace", "logistic", "cauchy" or "student" (with learned degrees of freedom above 2).
        prior: a `WeightPrior`, or patterns of parameter names with one each: `thesis_priors("M1")`, `load_priors(path)`. The
            default is a Gaussian of scale 1.
        where: which layers; the others stay as they are. "attention" for the attention layers, else see `choose_layers`.
        start: where the locations start. "thesis": matrices Glorot-uniform, all else as the model has it. "model": as the model has them.
        initial_scale: where the scales start, the default at softplus(-7) as in the thesis.
        relative_scale: scales start at this times |weight| instead (MOPED has 0.1), for a trained model with start="model".
        initial_df: where the degrees of freedom start, for "student".
        centre_prior: the prior is centred on where the locations start and not on 0 (MOPED).
        kl_samples: draws for each estimate of a KL that has no closed form.

    >>> import torch, bayesattn as ba
    >>> model = ba.weight_space.mean_field(
    ...     torch.nn.Linear(3, 1), "gaussian", ba.weight_space.WeightPrior("gaussian", scale=0.5)
    ... )
    >>> x, y = torch.randn(20, 3), torch.randn(20)
    >>> with ba.record() as latents:
    ...     nll = (model(x).squeeze(1) - y).square()
    >>> ba.elbo(nll, latents, dataset_size=20).backward()
    >>> ba.predict(model, x, samples=8, likelihood="values").variance.shape
    torch.Size([20, 1])
    """
    kind = family_by_name(family)
    checks.one_of("start", start, ("thesis", "model"))
    checks.positive("initial_scale", initial_scale)
    checks.whole("kl_samples", kl_samples)
    if relative_scale is not None:
        checks.positive("relative_scale", relative_scale)
    if checks.finite("initial_df", initial_df) <= SMALLEST_DF:
        raise ValueError(
            f"initial_df must be above {SMALLEST_DF:g}, got {initial_df!r}: below it the variance is infinite."
        )
    chosen = choose_layers(model, where)
    for name, module in chosen.items():
        if isinstance(module, RandomParameters):
            raise ValueError(f"The parameters of layer {name!r} are random already.")
        if isinstance(module, nn.RNNBase):
            raise ValueError(
                f"Layer {name!r} is a {type(module).__name__}, whose kernels keep their own copy of the weights: "
                "choose the other layers with where=."
            )
    priors = prior or WeightPrior()
    wanted = {
        f"{name}.{key}" if name else key: prior_of(priors, f"{name}.{key}" if name else key)
        for name, module in chosen.items()
        for key, _ in module.named_parameters(recurse=False)
    }  # all of them before anything is changed
    call_every_part(model, chosen)
    shared: dict[int, WeightPosterior] = {}
    for name, module in chosen.items():
        posteriors = {}
        for key, parameter in module.named_parameters(recurse=False):
            if id(parameter) not in shared:  # tied parameters have one distribution
                if start == "thesis" and parameter.dim() >= 2:
                    nn.init.xavier_uniform_(parameter)
                shared[id(parameter)] = WeightPosterior(
                    kind,
                    wanted[f"{name}.{key}" if name else key],
                    _raw_scale(parameter, initial_scale, relative_scale),
                    _raw_df(parameter, initial_df, kind),
                    parameter.detach().clone() if centre_prior else None,
                    kl_samples,
                )
            posteriors[key] = shared[id(parameter)]
        randomise(module, posteriors)
        module.train(module.training)
    return model


def _raw_scale(parameter: Tensor, initial: float, relative: float | None) -> Tensor:
    if relative is None:
        return torch.empty_like(parameter).normal_(inverse_softplus(initial), 0.01)  # scattered as in the thesis
    scale = (relative * parameter.detach().abs()).clamp_min(1e-6)  # a weight of exactly 0 needs some scale too
    return scale + torch.log(-torch.expm1(-scale))


def _raw_df(parameter: Tensor, initial: float, family: Family) -> Tensor | None:
    return torch.full_like(parameter, inverse_softplus(initial - SMALLEST_DF)) if family.has_df else None
