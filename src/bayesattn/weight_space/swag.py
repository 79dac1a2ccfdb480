"""SWAG (Maddox et al. 2019): a Gaussian fitted to where the optimiser goes at the end of training."""

from __future__ import annotations

from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from bayesattn.scopes import modes
from bayesattn.support import checks
from bayesattn.support.annotations import Float
from bayesattn.weight_space.layers import mix_in
from bayesattn.weight_space.network import ParameterVector
from bayesattn.weight_space.selection import Where

Model = TypeVar("Model", bound=nn.Module)


class SwagMoments:
    """Mean, variance and last deviations of the collected weights, as views of a model's buffers.

    θ = mean + (diagonal^½ z_1 + D z_2 / sqrt(K - 1)) / sqrt(2),   z_1, z_2 ~ N(0, I)
    """

    def __init__(
        self,
        mean: Float[Tensor, " parameters"],
        variance: Float[Tensor, " parameters"],
        deviations: Float[Tensor, "rank parameters"],
        count: Tensor,
    ):
        self.mean = mean
        self.variance = variance
        self.deviations = deviations
        self.count = count

    @classmethod
    def empty(cls, size: int, rank: int) -> SwagMoments:
        """Of nothing."""
        return cls(torch.zeros(size), torch.zeros(size), torch.zeros(rank, size), torch.zeros((), dtype=torch.long))

    def add(self, vector: Float[Tensor, " parameters"]) -> None:
        """Count these weights in."""
        vector = vector.to(self.mean.dtype)
        self.count += 1
        before = vector - self.mean
        self.mean += before / self.count
        # Welford's: a mean of squares less the square of the mean would cancel in float32
        self.variance += (before * (vector - self.mean) - self.variance) / self.count
        self.deviations.copy_(torch.cat([self.deviations[1:], (vector - self.mean).unsqueeze(0)]))

    def draw(self) -> Float[Tensor, " parameters"]:
        """All weights, drawn together."""
        generator = modes.current_generator()
        used = self.deviations[-min(int(self.count), len(self.deviations)) :]
        diagonal = torch.empty_like(self.mean).normal_(generator=generator) * self.variance.sqrt()
        low_rank = torch.empty_like(used[:, 0]).normal_(generator=generator) @ used / max(len(used) - 1, 1) ** 0.5
        return self.mean + (diagonal + low_rank) / 2**0.5


class SwagNetwork(modes.DrawsOnce, nn.Module):
    """A network that runs with averaged weights in eval mode, and with drawn ones inside `sampling()`. Mixed into its own class."""

    swag_parameters: ParameterVector
    swag_mean: Tensor
    swag_variance: Tensor
    swag_deviations: Tensor
    swag_count: Tensor

    @property
    def swag_moments(self) -> SwagMoments:
        """What was collected. The buffers are the model's own: a container such as nn.Sequential would run a part with them."""
        return SwagMoments(self.swag_mean, self.swag_variance, self.swag_deviations, self.swag_count)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any) -> None:
        # states of an older form hold the mean of the squares
        square = state_dict.pop(f"{prefix}swag_square", None)
        if square is not None:
            state_dict[f"{prefix}swag_variance"] = (square - state_dict[f"{prefix}swag_mean"].square()).clamp_min(0.0)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        moments = self.swag_moments
        if modes.is_sampling() and moments.count < 2:
            raise RuntimeError(
                f"Weights were collected {int(moments.count)} time(s), a covariance needs at least 2: "
                "call ba.weight_space.collect(model) at the end of several epochs, or train for more of them."
            )
        if (self.training and not modes.is_sampling()) or moments.count == 0:
            return super().forward(*args, **kwargs)  # pyright: ignore[reportAttributeAccessIssue]
        vector = modes.kept_draw(self, moments.draw) if modes.is_sampling() else moments.mean
        drawn = self.swag_parameters.model_with(self, self.swag_parameters.parts(vector))
        return super(SwagNetwork, drawn).forward(*args, **kwargs)  # pyright: ignore[reportAttributeAccessIssue]


def swag(model: Model, *, where: Where = None, rank: int = 20) -> Model:
    """Prepare `model` to collect its weights while it trains, in place; call `collect(model)` at the end of each late epoch.

    Args:
        model: any module.
        where: which layers are averaged and drawn, see `choose_layers`; the others keep their weights.
        rank: how many of the last deviations are kept, for the low-rank part of the covariance.

    >>> import torch, bayesattn as ba
    >>> model = ba.weight_space.swag(torch.nn.Linear(3, 2), rank=5)
    >>> for epoch in range(8):
    ...     _ = torch.nn.init.normal_(model.weight)  # train here
    ...     ba.weight_space.collect(model)
    >>> ba.predict(model, torch.randn(4, 3), samples=16).mutual_information.shape
    torch.Size([4])
    """
    checks.whole("rank", rank, minimum=2, hint="The covariance needs at least two deviations")
    if isinstance(model, SwagNetwork):
        raise ValueError(f"{type(model).__name__} collects its weights already.")
    parameters = ParameterVector(model, where)
    device = next(model.parameters()).device
    mix_in(model, SwagNetwork)
    network: Any = model  # of its new class now
    network.swag_parameters = parameters
    for name, moment in vars(SwagMoments.empty(len(parameters), rank)).items():
        model.register_buffer(f"swag_{name}", moment.to(device))
    return model


def collect(model: nn.Module) -> None:
    """Count the model's present weights in."""
    if not isinstance(model, SwagNetwork):
        raise ValueError(
            f"{type(model).__name__} is not prepared to collect weights: call ba.weight_space.swag(model) first."
        )
    model.swag_moments.add(model.swag_parameters.read(model))
