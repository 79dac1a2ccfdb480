"""SWAG (Maddox et al. 2019): a Gaussian fitted to where the optimiser goes at the end of training."""

from __future__ import annotations

from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from bayesattn import checks, latents
from bayesattn.annotations import Float
from bayesattn.weights.layers import mix_in
from bayesattn.weights.network import ParameterVector
from bayesattn.weights.selection import Where

Model = TypeVar("Model", bound=nn.Module)


class SwagMoments(nn.Module):
    """Mean, mean square and last deviations of the collected weights; all are buffers, kept in the state dict.

        θ = mean + (diagonal^½ z_1 + D z_2 / sqrt(K - 1)) / sqrt(2),   z_1, z_2 ~ N(0, I)
    """

    mean: Tensor
    square: Tensor
    deviations: Tensor
    count: Tensor

    def __init__(self, size: int, rank: int):
        super().__init__()
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("square", torch.zeros(size))
        self.register_buffer("deviations", torch.zeros(rank, size))
        self.register_buffer("count", torch.zeros((), dtype=torch.long))

    def add(self, vector: Float[Tensor, " parameters"]) -> None:
        """Count these weights in."""
        vector = vector.to(self.mean.dtype)
        self.count += 1
        self.mean += (vector - self.mean) / self.count
        self.square += (vector.square() - self.square) / self.count
        self.deviations.copy_(torch.cat([self.deviations[1:], (vector - self.mean).unsqueeze(0)]))

    @property
    def variance(self) -> Float[Tensor, " parameters"]:
        """Of each weight, over what was collected."""
        return (self.square - self.mean.square()).clamp_min(0.0)

    def draw(self) -> Float[Tensor, " parameters"]:
        """All weights, drawn together."""
        generator = latents.current_generator()
        used = self.deviations[-min(int(self.count), len(self.deviations)) :]
        diagonal = torch.empty_like(self.mean).normal_(generator=generator) * self.variance.sqrt()
        low_rank = torch.empty_like(used[:, 0]).normal_(generator=generator) @ used / max(len(used) - 1, 1) ** 0.5
        return self.mean + (diagonal + low_rank) / 2**0.5


class SwagNetwork(latents.DrawsOnce, nn.Module):
    """A network that runs with averaged weights in eval mode, and with drawn ones inside `sampling()`. Mixed into its own class."""

    swag_moments: SwagMoments
    swag_parameters: ParameterVector

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        moments = self.swag_moments
        if (self.training and not latents.is_sampling()) or moments.count == 0:
            return super().forward(*args, **kwargs)  # pyright: ignore[reportAttributeAccessIssue]
        vector = latents.kept_draw(moments, moments.draw) if latents.is_sampling() else moments.mean
        with self.swag_parameters.in_place(self, self.swag_parameters.parts(vector)):
            return super().forward(*args, **kwargs)  # pyright: ignore[reportAttributeAccessIssue]


def swag(model: Model, *, where: Where = None, rank: int = 20) -> Model:
    """Prepare `model` to collect its weights while it trains, in place; call `collect(model)` at the end of each late epoch.

    Args:
        model: any module.
        where: which layers are averaged and drawn, see `choose_layers`; the others keep their weights.
        rank: how many of the last deviations are kept, for the low-rank part of the covariance.

    >>> import torch, bayesattn as ba
    >>> model = ba.weights.swag(torch.nn.Linear(3, 2), rank=5)
    >>> for epoch in range(8):
    ...     _ = torch.nn.init.normal_(model.weight)  # train here
    ...     ba.weights.collect(model)
    >>> ba.predict(model, torch.randn(4, 3), samples=16).mutual_information.shape
    torch.Size([4])
    """
    checks.whole("rank", rank, minimum=2, hint="The covariance needs at least two deviations")
    if isinstance(model, SwagNetwork):
        raise ValueError(f"{type(model).__name__} collects its weights already.")
    parameters = ParameterVector(model, where)
    moments = SwagMoments(len(parameters), rank).to(next(model.parameters()).device)
    mix_in(model, SwagNetwork)
    model.swag_moments = moments
    model.swag_parameters = parameters
    return model


def collect(model: nn.Module) -> None:
    """Count the model's present weights in."""
    if not isinstance(model, SwagNetwork):
        raise ValueError(f"{type(model).__name__} is not prepared to collect weights: call ba.weights.swag(model) first.")
    model.swag_moments.add(model.swag_parameters.read(model))
