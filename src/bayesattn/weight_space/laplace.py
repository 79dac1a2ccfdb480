"""The Laplace approximation: after training, a Gaussian around the weights, and a network that is linear in them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from bayesattn.prediction.calling import call, default_output
from bayesattn.prediction.predictions import CategoricalPrediction
from bayesattn.prediction.sampled import predict
from bayesattn.scopes import modes
from bayesattn.support import checks
from bayesattn.support.annotations import Float
from bayesattn.weight_space.curvature import (
    LaplaceLikelihood,
    Output,
    check_deterministic,
    differentiable_attention,
    gauss_newton_rows,
    model_outputs,
    natural_outputs,
)
from bayesattn.weight_space.layers import mix_in
from bayesattn.weight_space.network import ParameterVector
from bayesattn.weight_space.selection import Where

Model = TypeVar("Model", bound=nn.Module)
Structure = Literal["diagonal", "full"]
PriorPrecision = float | Literal["marginal-likelihood", "validation"]

LARGEST_FULL = 10_000
"""Parameters of the largest full matrix that is decomposed; with fewer rows than parameters there is no limit."""
_VALIDATED = torch.logspace(-4, 6, 21, dtype=torch.float64).tolist()


class LaplacePosterior(ABC):
    """N(θ*, (H + δ I)^-1) with the Gauss-Newton matrix H and the prior precision δ. No part of the state dict: `save_laplace`."""

    def __init__(self, prior_precision: float = 1.0):
        self.prior_precision = prior_precision

    @abstractmethod
    def eigenvalues(self) -> Float[Tensor, " values"]:
        """Of H, those that are not zero."""

    @abstractmethod
    def deviation(self) -> Float[Tensor, " parameters"]:
        """θ - θ*, drawn."""

    @abstractmethod
    def covariance(self) -> Float[Tensor, "parameters parameters"]:
        """The covariance matrix, for few parameters."""

    def log_marginal_likelihood(
        self, weights: Float[Tensor, " parameters"], precision: float | Tensor
    ) -> Float[Tensor, ""]:
        """log p(data) at this prior precision, less what does not depend on it (the likelihood at θ*)."""
        precision = torch.as_tensor(precision, dtype=torch.float64)
        occam = torch.log1p(self.eigenvalues().double() / precision).sum()
        return -0.5 * (occam + precision * weights.double().square().sum())

    def best_precision(self, weights: Float[Tensor, " parameters"]) -> float:
        """The prior precision of highest marginal likelihood."""
        low, high = -8.0, 12.0
        for _ in range(3):  # each grid within the neighbours of the last one's best
            grid = torch.linspace(low, high, 81, dtype=torch.float64)
            values = torch.stack([self.log_marginal_likelihood(weights, 10.0**exponent) for exponent in grid.tolist()])
            best = int(values.argmax())
            low, high = grid[max(best - 1, 0)].item(), grid[min(best + 1, 80)].item()
        return 10.0 ** ((low + high) / 2)


class DiagonalPosterior(LaplacePosterior):
    """H is its diagonal."""

    def __init__(self, diagonal: Float[Tensor, " parameters"]):
        super().__init__()
        self.diagonal = diagonal

    def eigenvalues(self) -> Tensor:
        return self.diagonal

    def deviation(self) -> Tensor:
        noise = torch.empty_like(self.diagonal).normal_(generator=modes.current_generator())
        return noise * (self.diagonal + self.prior_precision).rsqrt()

    def covariance(self) -> Tensor:
        return torch.diag(1.0 / (self.diagonal + self.prior_precision))


class FullPosterior(LaplacePosterior):
    """H = V diag(values) V^T, with as many eigenvectors as H has rank; elsewhere the posterior is the prior."""

    def __init__(self, values: Float[Tensor, " rank"], vectors: Float[Tensor, "parameters rank"]):
        super().__init__()
        self.values = values
        self.vectors = vectors

    def eigenvalues(self) -> Tensor:
        return self.values

    def deviation(self) -> Tensor:
        noise = torch.empty_like(self.vectors[:, 0]).normal_(generator=modes.current_generator())
        prior = self.prior_precision**-0.5
        inside = (self.values + self.prior_precision).rsqrt() - prior
        return prior * noise + self.vectors @ (inside * (noise @ self.vectors))

    def covariance(self) -> Tensor:
        inside = 1.0 / (self.values + self.prior_precision) - 1.0 / self.prior_precision
        identity = torch.eye(len(self.vectors), dtype=self.values.dtype, device=self.values.device)
        return identity / self.prior_precision + (self.vectors * inside) @ self.vectors.T


class LinearisedNetwork(modes.DrawsOnce, nn.Module):
    """A network that inside `sampling()` gives f(x; θ*) + J (θ - θ*) with drawn θ, else f(x; θ*). Mixed into its own class."""

    laplace_posterior: LaplacePosterior
    laplace_parameters: ParameterVector
    laplace_likelihood: LaplaceLikelihood
    laplace_output: Output

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if self.training or not modes.is_sampling():
            return super().forward(*args, **kwargs)  # pyright: ignore[reportAttributeAccessIssue]
        posterior, parameters = self.laplace_posterior, self.laplace_parameters
        deviation = modes.kept_draw(posterior, posterior.deviation)

        def outputs(values: dict[str, Tensor]) -> Tensor:
            network: Any = super(LinearisedNetwork, parameters.model_with(self, values))
            return natural_outputs(self.laplace_output(network.forward(*args, **kwargs)), self.laplace_likelihood)

        weights = {name: self.get_parameter(name).detach() for name in parameters.shapes}
        tangents = {name: part.to(weights[name]) for name, part in parameters.parts(deviation).items()}
        with differentiable_attention():
            point, change = torch.func.jvp(outputs, (weights,), (tangents,))[:2]
        return model_outputs(point + change, self.laplace_likelihood)


def laplace(
    model: Model,
    inputs: Any,
    likelihood: LaplaceLikelihood = "categorical",
    *,
    where: Where = None,
    structure: Structure = "diagonal",
    prior_precision: PriorPrecision = "marginal-likelihood",
    validation: tuple[Any, Tensor] | None = None,
    mask: Tensor | None = None,
    samples: int | None = None,
    output: Output | None = None,
    seed: int = 0,
) -> Model:
    """Put a Gaussian around the trained weights of `model`, in place: N(θ*, (H + δ I)^-1), H the Gauss-Newton matrix of the data.

    `ba.predict` then samples the linearised network f(x; θ*) + J (θ - θ*) (the GLM predictive), whose derivative is taken
    in forward mode: a sample costs two passes. In eval mode without sampling the model is what it was.

    Args:
        model: a trained model in eval mode.
        inputs: all training inputs: a tensor, or a tuple or dict of tensors with the examples first.
        likelihood: "categorical": the model gives logits, classes last. "gaussian": it gives (mean, standard deviation); linearised
            are the mean and the logarithm of the standard deviation. Any number of positions may lie between.
        where: which layers are random, see `choose_layers`. "last" is the last layer.
        structure: "diagonal" (for whole networks), or "full" (for one layer).
        prior_precision: δ, a number; or that of highest marginal likelihood, or of highest likelihood on `validation`.
        validation: (inputs, targets), for prior_precision="validation".
        mask: which positions of each example count, True or 1, such as [batch, length] for padded sequences.
        samples: None computes H exactly, with a backward pass for every output of every example. A number takes so many random
            combinations of the outputs of each example instead: unbiased, and the only way where outputs are many.
        output: takes the output out of what the model returns; by default `.logits` if there is such an attribute.
        seed: of the random combinations.

    >>> import torch, bayesattn as ba
    >>> model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2)).eval()
    >>> model = ba.weight_space.laplace(model, torch.randn(50, 3), "categorical", where="last", structure="full")
    >>> ba.predict(model, torch.randn(5, 3), samples=16).mutual_information.shape
    torch.Size([5])
    """
    checks.one_of("likelihood", likelihood, ("categorical", "gaussian"))
    checks.one_of("structure", structure, ("diagonal", "full"))
    if isinstance(prior_precision, str):
        checks.one_of("prior_precision", prior_precision, ("marginal-likelihood", "validation"))
    else:
        checks.positive("prior_precision", prior_precision)
    if (validation is None) == (prior_precision == "validation"):
        raise ValueError("prior_precision='validation' and validation=(inputs, targets) need each other.")
    if samples is not None:
        checks.whole("samples", samples)
    if isinstance(model, LinearisedNetwork):
        raise ValueError(f"{type(model).__name__} has a Laplace approximation already.")
    check_deterministic(model)
    parameters = ParameterVector(model, where)
    take = output or default_output

    def run(values: dict[str, Tensor], batch: Any) -> Tensor:
        return natural_outputs(take(call(parameters.model_with(model, values), batch)), likelihood)

    weights = {name: model.get_parameter(name).detach() for name in parameters.shapes}
    generator = torch.Generator().manual_seed(seed)
    with differentiable_attention():
        rows = gauss_newton_rows(run, weights, inputs, mask, likelihood, samples, generator)
        posterior = _diagonal(rows) if structure == "diagonal" else _full(rows, len(parameters), inputs, samples)
    if isinstance(prior_precision, float | int):
        posterior.prior_precision = float(prior_precision)
    linearise(model, posterior, parameters, likelihood, output)
    if prior_precision == "marginal-likelihood":
        posterior.prior_precision = posterior.best_precision(parameters.read(model))
    elif validation is not None:
        posterior.prior_precision = _validated_precision(model, posterior, validation, likelihood, seed)
    return model


def linearise(
    model: Model,
    posterior: LaplacePosterior,
    parameters: ParameterVector,
    likelihood: LaplaceLikelihood,
    output: Output | None,
) -> Model:
    """Make the model one that samples from this posterior, in place."""
    mix_in(model, LinearisedNetwork)
    network: Any = model  # of its new class now
    network.laplace_posterior = posterior
    network.laplace_parameters = parameters
    network.laplace_likelihood = likelihood
    network.laplace_output = output or default_output
    return model


def _diagonal(rows: Iterable[Tensor]) -> DiagonalPosterior:
    total: Tensor | None = None
    for block in rows:
        squares = block.square().sum(0)
        total = squares if total is None else total + squares
    assert total is not None
    return DiagonalPosterior(total)


def _full(rows: Iterable[Tensor], size: int, inputs: Any, samples: int | None) -> FullPosterior:
    """The eigendecomposition of Σ r r^T, by way of the rows' own products where there are fewer rows than parameters."""
    batch = next(leaf for leaf in pytree.tree_leaves(inputs) if isinstance(leaf, Tensor)).shape[0]
    few = samples is not None and batch * samples < size
    if few:
        matrix = torch.cat(list(rows))
        vectors, roots, _ = torch.linalg.svd(matrix.T, full_matrices=False)
        return FullPosterior(roots.square(), vectors)
    if size > LARGEST_FULL:
        raise ValueError(
            f"structure='full' of {size} parameters is a matrix of {size} x {size}: choose fewer layers with where=, structure='diagonal', "
            f"or samples= below {size / batch:.1f} random rows for each of the {batch} examples."
        )
    total: Tensor | None = None
    for block in rows:
        product = block.T @ block
        total = product if total is None else total + product
    assert total is not None
    values, vectors = torch.linalg.eigh(total)
    return FullPosterior(values.clamp_min(0.0), vectors)


def _validated_precision(
    model: nn.Module,
    posterior: LaplacePosterior,
    validation: tuple[Any, Tensor],
    likelihood: LaplaceLikelihood,
    seed: int,
) -> float:
    """The prior precision under which the validation targets are most probable."""
    inputs, targets = validation
    found: list[float] = []
    for precision in _VALIDATED:
        posterior.prior_precision = precision
        generator = torch.Generator(targets.device).manual_seed(seed)  # the same noise for all
        prediction: CategoricalPrediction = predict(model, inputs, 16, likelihood=likelihood, generator=generator)
        found.append(prediction.log_prob(targets).double().nan_to_num(-torch.inf).sum().item())
    return _VALIDATED[max(range(len(found)), key=found.__getitem__)]
