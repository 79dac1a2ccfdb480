"""Concrete dropout (Gal, Hron, Kendall 2017): dropout of the inputs of linear layers, with probabilities that are learned."""

from __future__ import annotations

from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from bayesattn.nn import MultiheadAttention
from bayesattn.numerics.precision import to_compute
from bayesattn.scopes import modes, recording
from bayesattn.support import checks
from bayesattn.support.annotations import Float
from bayesattn.weight_space.layers import call_every_part, mix_in
from bayesattn.weight_space.selection import Where, choose_layers

Model = TypeVar("Model", bound=nn.Module)


class ConcreteDropout(nn.Module):
    """Drops each input with a learned probability p, smoothly, so that p has a gradient:

        z = sigmoid((log p - log(1 - p) + log u - log(1 - u)) / t),   x (1 - z) / (1 - p),   u ~ U(0, 1).

    Its KL is that of a spike-and-slab posterior to N(0, 1/l²), up to constants: l² (1 - p) / 2 ‖M‖² - K H(p), with the layer's
    weights M, its K inputs, and H the entropy of a coin.

    >>> import torch
    >>> _ = torch.manual_seed(0)
    >>> dropout = ConcreteDropout(0.25, temperature=0.1, length_scale=1.0)
    >>> round(dropout.dropped(torch.ones(20000)).mean().item(), 2)
    1.0
    """

    def __init__(self, start: float, temperature: float, length_scale: float):
        super().__init__()
        self.temperature = temperature
        self.length_scale = length_scale
        self.logit = nn.Parameter(torch.logit(torch.tensor(start)))

    @property
    def probability(self) -> Float[Tensor, ""]:
        """How much is dropped."""
        return to_compute(self.logit).sigmoid()

    def dropped(self, x: Tensor) -> Tensor:
        """`x` with a part dropped, the rest scaled up."""
        noise = torch.empty_like(x, dtype=self.logit.dtype).uniform_(generator=modes.current_generator())
        keep = torch.sigmoid(-(self.logit + torch.logit(noise, eps=1e-7)) / self.temperature)
        return x * (keep / (1.0 - self.probability)).to(x.dtype)

    def kl(self, weights: list[Tensor], inputs: int) -> Float[Tensor, ""]:
        """The KL of a layer with these parameters and so many inputs, up to constants."""
        p = self.probability
        squares = torch.stack([to_compute(weight).square().sum() for weight in weights]).sum()
        entropy = torch.nn.functional.binary_cross_entropy(p, p)
        return 0.5 * self.length_scale**2 * (1.0 - p) * squares - inputs * entropy


class _DropsInputs(nn.Module):
    """A layer with concrete dropout before it. It is mixed into the layer's own class."""

    concrete_dropout: ConcreteDropout

    def _record(self, inputs: int) -> None:
        if recording.kl_is_wanted():
            weights: list[Tensor] = list(self.parameters(recurse=False))
            recording.add_global(self.concrete_dropout.kl(weights, inputs), self)

    def _dropped(self, x: Tensor) -> Tensor:
        return self.concrete_dropout.dropped(x) if self.training or modes.is_sampling() else x


class DroppingLinear(_DropsInputs):
    """`nn.Linear` and convolutions."""

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Any:
        self._record(x.shape[-1] if isinstance(self, nn.Linear) else x.shape[1])
        return super().forward(self._dropped(x), *args, **kwargs)  # pyright: ignore[reportAttributeAccessIssue]


class DroppingAttention(_DropsInputs):
    """The input projections of `bayesattn.nn.MultiheadAttention`; its output projection is a linear layer of its own."""

    def _project_inputs(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        self._record(query.shape[-1])
        dropped: dict[int, Tensor] = {}
        for x in (query, key, value):
            if id(x) not in dropped:  # self-attention has one input, and drops it once
                dropped[id(x)] = self._dropped(x)
        inputs = (dropped[id(x)] for x in (query, key, value))
        return super()._project_inputs(*inputs)  # pyright: ignore[reportAttributeAccessIssue]


def concrete_dropout(
    model: Model,
    *,
    where: Where = None,
    initial: float | tuple[float, float] = (0.1, 0.5),
    temperature: float = 0.1,
    length_scale: float = 1.0,
) -> Model:
    """Give the linear layers of `model` (convolutions and attention projections too) dropout with learned probabilities, in place.

    Train with `ba.elbo(nll, latents, dataset_size=...)`, predict with `ba.predict`.

    Args:
        model: any module with such layers; its others are not changed.
        where: which layers, see `choose_layers`; "attention" for the attention layers.
        initial: where the probabilities start: a number, or a range they are drawn from, as in the thesis.
        temperature: of the relaxed coin; small values drop all or nothing.
        length_scale: l, the prior's: weights are a priori N(0, 1/l²). Not stated in the thesis.

    >>> import torch, bayesattn as ba
    >>> model = ba.weight_space.concrete_dropout(
    ...     torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    ... )
    >>> with ba.record() as latents:
    ...     logits = model(torch.randn(5, 3))
    >>> len(latents.global_terms)
    2
    """
    checks.positive("temperature", temperature)
    checks.positive("length_scale", length_scale)
    low, high = initial if isinstance(initial, tuple) else (initial, initial)
    if not 0 < low <= high < 1:
        raise ValueError(f"initial must lie in (0, 1), got {initial!r}: it is a probability, or a range of them.")
    kinds = (nn.Linear, nn.modules.conv._ConvNd, nn.MultiheadAttention, MultiheadAttention)
    chosen: dict[str, nn.Module] = {
        name: layer for name, layer in choose_layers(model, where).items() if isinstance(layer, kinds)
    }
    if not chosen:
        raise ValueError(
            f"where={where!r} chooses no linear layer, convolution or multi-head attention of {type(model).__name__}: "
            "there is nothing to drop."
        )
    if any(hasattr(layer, "concrete_dropout") for layer in chosen.values()):
        raise ValueError(f"{type(model).__name__} has concrete dropout already.")
    call_every_part(model, chosen)
    for layer in chosen.values():
        start = torch.empty(()).uniform_(low, high).item() if high > low else low
        mix_in(layer, DroppingAttention if isinstance(layer, MultiheadAttention) else DroppingLinear)
        parameter = next(layer.parameters(recurse=False))
        dropout = ConcreteDropout(start, temperature, length_scale).to(parameter.device, parameter.dtype)
        layer.concrete_dropout = dropout.train(layer.training)
    return model
