"""Gamma draws that are a function of a counter, in logarithms, and how they move with their concentration.

The boost identity makes a draw for any concentration a from one for a + 1, by Marsaglia and Tsang (2000),

    log X = log G + log(U) / a,    G = d v³ ~ Gamma(a + 1),    d = a + 2/3,  v = 1 + z / (3 √d),  z normal,

where v is taken if log(U') < z²/2 + d - d v³ + d log v³, which happens nineteen times in twenty or more often. Every try has its own two
streams of the counter, so that no backend need know what another one tried. After `TRIALS` tries, that is once in 10^8 draws, v = 1.

The gradient is the implicit one, dG/da = -(∂F/∂a) / (∂F/∂G) with F the distribution function. Below G = 1 it is a short power series; from
there on it is what z held fixed would give, and a small correction, fitted by least squares to differences of quantiles
(tests/helpers/gamma_fit.py).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bayesattn.numerics.counter_noise import CounterNoise
from bayesattn.support.annotations import Float

TRIALS = 6
FIRST_STREAM = 2
"""Try t takes the normal draw of stream 2 + 2 t and the uniform one of stream 3 + 2 t."""

# Σ COEFFICIENTS[-1-j][-1-i] u^i t^j with u = 12 s - 1, s = 1 / (9 d), t = (v - 1.9) / 1.5
CORRECTION = (
    (-4.01834961e-04, 1.95733747e-02, -1.13580468e-01, 2.06784981e-01, -1.46918589e-01, 4.20759251e-02),
    (-3.64086657e-03, 1.50398185e-01, -4.44360303e-01, 4.39954078e-01, -1.54087278e-01, -1.53040062e-02),
    (-5.84435729e-02, 3.18581018e-01, -4.50664510e-01, 2.04718412e-01, -6.56633998e-03, 3.89384845e-02),
    (-9.85616463e-02, 2.05335163e-01, -6.57386679e-02, -8.98505503e-02, 5.80270537e-02, -7.22306745e-02),
    (-2.89430675e-02, -1.21395374e-02, 1.11182424e-01, -9.77469730e-02, 3.64608011e-02, 6.94194970e-02),
    (2.27246955e-02, -5.91372325e-02, 4.54492652e-02, 1.52038612e-03, -3.63510051e-02, -4.18869989e-02),
    (1.14541903e-02, -1.50792840e-02, -4.56799993e-03, 9.85544770e-03, 3.30890262e-02, -4.36743582e-02),
    (-2.51926628e-04, 1.16546029e-03, 2.86662225e-04, -4.21153053e-03, -3.05537350e-02, 2.17143834e-01),
    (-2.51507159e-04, 4.72161725e-04, -1.63220231e-03, 7.09416140e-03, 1.38536182e-02, 2.84887658e-01),
    (-1.09064010e-04, 2.06144991e-04, 6.45121552e-04, -5.64953759e-03, 3.22981142e-03, 8.36451713e-02),
)
SERIES_TERMS = 8


def draw(
    noise: CounterNoise, log_concentration: Float[Tensor, "batch heads query key"]
) -> tuple[Float[Tensor, "batch heads query key"], Float[Tensor, "batch heads query key"]]:
    """log X with X ~ Gamma(exp(log_concentration), 1), and d log X / d log_concentration."""
    a = log_concentration.exp()
    root = _boosted_root(noise, a)
    exponential = -noise.uniform(a).log_().flatten(-3)[..., : a.shape[-1]] * (-log_concentration).exp()
    log_boosted = (a + 2.0 / 3.0).log() + 3.0 * root.log()
    return log_boosted - exponential, a * log_slope(a, root, log_boosted) + exponential


def _boosted_root(noise: CounterNoise, a: Tensor) -> Tensor:
    """v of the module's docstring."""
    d = a + 2.0 / 3.0
    normal = noise.normal(a, FIRST_STREAM)
    uniform = noise.uniform(a, FIRST_STREAM + 1).flatten(-3)[..., : a.shape[-1]]
    root, taken = _propose(normal, uniform, d)
    places = (~taken).nonzero(as_tuple=True)
    for trial in range(1, TRIALS):
        if len(places[0]) == 0:
            break
        stream = FIRST_STREAM + 2 * trial
        normal, uniform = noise.normal_at(places, stream, a.dtype), noise.uniform_at(places, stream + 1, a.dtype)
        root[places], taken = _propose(normal, uniform, d[places])
        places = tuple(place[~taken] for place in places)
    root[places] = 1.0
    return root


def _propose(normal: Tensor, uniform: Tensor, d: Tensor) -> tuple[Tensor, Tensor]:
    root = 1.0 + normal / (3.0 * d.sqrt())
    # where the root is not positive, its logarithm is NaN, and every comparison with it false
    bound = 0.5 * normal.square() + d * (1.0 - root**3 + 3.0 * root.log())
    return root, uniform.log() < bound


def log_slope(a: Tensor, root: Tensor, log_boosted: Tensor) -> Tensor:
    """d log G / d a at a fixed value of the distribution function, G = exp(log_boosted) = (a + 2/3) root³ ~ Gamma(a + 1)."""
    d = a + 2.0 / 3.0
    u, t = 4.0 / (3.0 * d) - 1.0, (root - 1.9) / 1.5
    correction = torch.zeros_like(a)
    for coefficients in CORRECTION:
        inner = torch.zeros_like(a)
        for coefficient in coefficients:
            inner = inner * u + coefficient
        correction = correction * t + inner
    fitted = (1.0 - (1.5 * (root - 1.0) - correction) / root) / d
    # Σ x^n Γ(a+1) / Γ(a+n+2) · (ψ(a+n+2) - log x), terms and digammas by recurrence
    x = log_boosted.clamp_max(0.0).exp()
    digamma, term, series = torch.digamma(a + 1.0), torch.ones_like(a), torch.zeros_like(a)
    for n in range(SERIES_TERMS):
        inverse = 1.0 / (a + (n + 1.0))
        digamma, term = digamma + inverse, term * inverse
        series = series + term * (digamma - log_boosted)
        term = term * x
    return torch.where(log_boosted < 0.0, series, fitted)


@torch.library.custom_op(
    "bayesattn::log_gamma",
    mutates_args=(),
    schema="(Tensor log_concentration, Tensor seed, str generator) -> (Tensor, Tensor)",
)
def _log_gamma(log_concentration: Tensor, seed: Tensor, generator: Any) -> tuple[Tensor, Tensor]:
    return draw(CounterNoise(seed, generator), log_concentration)


@_log_gamma.register_fake
def _(log_concentration: Tensor, seed: Tensor, generator: str) -> tuple[Tensor, Tensor]:
    return torch.empty_like(log_concentration), torch.empty_like(log_concentration)


def _remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(output[1])


def _differentiate(ctx: Any, gradient: Tensor, _: Any) -> tuple[Tensor, None, None]:
    return gradient * ctx.saved_tensors[0], None, None


_log_gamma.register_autograd(_differentiate, setup_context=_remember)


@_log_gamma.register_vmap
def _(info: Any, in_dims: tuple[int | None, ...], log_concentration: Tensor, seed: Tensor, generator: str) -> Any:
    """Samples are more examples, with the noise of the first seed."""
    if in_dims[1] is None:
        raise NotImplementedError("vmap over Gamma draws with the same noise: use randomness='different'.")
    if in_dims[0] is None:
        log_concentration = log_concentration.expand(info.batch_size, *log_concentration.shape)
    else:
        log_concentration = log_concentration.movedim(in_dims[0], 0)
    found = _log_gamma(log_concentration.flatten(0, 1), seed.select(in_dims[1], 0), generator)
    return tuple(tensor.unflatten(0, (info.batch_size, -1)) for tensor in found), (0, 0)


class _Moved(torch.autograd.Function):
    """Draws that move with their concentration, for derivatives of every kind, once; torch.compile goes by the operator's own rule."""

    generate_vmap_rule = True

    @staticmethod
    def forward(log_concentration: Tensor, drawn: Tensor, slope: Tensor) -> Tensor:
        return drawn.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        log_concentration, _, slope = inputs
        ctx.save_for_backward(log_concentration, slope)
        ctx.save_for_forward(log_concentration, slope)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        log_concentration, slope = ctx.saved_tensors
        return gradients[0] * _Slope.apply(slope, log_concentration), None, None

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor) -> Tensor:
        log_concentration, slope = ctx.saved_tensors
        return tangents[0] * _Slope.apply(slope, log_concentration)


class _Slope(torch.autograd.Function):
    """The slope as a function of the concentration, whose own derivative is refused: as a constant it would silently be wrong."""

    generate_vmap_rule = True

    @staticmethod
    def forward(slope: Tensor, log_concentration: Tensor) -> Tensor:
        return slope.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        raise NotImplementedError(_NO_SECOND_DERIVATIVE)

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor) -> Tensor:
        raise NotImplementedError(_NO_SECOND_DERIVATIVE)


_NO_SECOND_DERIVATIVE = (
    "Gamma draws, and so Dirichlet attention while it draws, have no second derivative: use the point estimate (eval mode), "
    "Dirichlet(approximate=True), or another posterior."
)


def log_gamma(
    noise: CounterNoise, log_concentration: Float[Tensor, "batch heads query key"]
) -> Float[Tensor, "batch heads query key"]:
    """log X with X ~ Gamma(exp(log_concentration), 1), with its gradient; one operator for autograd, torch.compile and vmap.

    >>> import torch
    >>> noise = CounterNoise(torch.tensor([7]))
    >>> draws = log_gamma(noise, torch.full((4, 4, 100, 100), 3.0).log()).exp()
    >>> abs(draws.mean() - 3.0) < 0.03, abs(draws.var() - 3.0) < 0.1
    (tensor(True), tensor(True))
    """
    if torch.compiler.is_compiling():
        return _log_gamma(log_concentration, noise.seed, noise.generator)[0]
    drawn, slope = _log_gamma(log_concentration.detach(), noise.seed, noise.generator)
    return _Moved.apply(log_concentration, drawn, slope)  # pyright: ignore[reportReturnType]
