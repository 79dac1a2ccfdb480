"""Modules whose parameters are random variables: in place, by giving the module a subclass of its own class.

The parameter itself stays where it was and is the location of its distribution, so state-dict keys, optimisers and references stay
as they are; a `WeightPosterior` beside it has the rest. In training and inside `sampling()` the module runs with drawn parameters, in eval
with the locations.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bayesattn.nn import MultiheadAttention
from bayesattn.numerics.precision import to_compute
from bayesattn.posteriors import Softmax
from bayesattn.scopes import modes, recording
from bayesattn.support.annotations import Float
from bayesattn.support.replica import copied
from bayesattn.weight_space.divergence import is_closed, kl_to_prior
from bayesattn.weight_space.families import Family, Linear
from bayesattn.weight_space.priors import WeightPrior

SMALLEST_DF = 2.0
"""Student-t posteriors have more degrees of freedom than this, so that their variance is finite."""


class WeightPosterior(nn.Module):
    """The distribution of one parameter: its family, scale (softplus of `raw_scale`), degrees of freedom, and its prior.

    `prior_location` is what the prior is centred on; None is 0.
    """

    prior_location: Tensor | None

    def __init__(
        self,
        family: Family,
        prior: WeightPrior,
        raw_scale: Tensor,
        raw_df: Tensor | None,
        prior_location: Tensor | None,
        kl_samples: int,
    ):
        super().__init__()
        self.family = family
        self.prior = prior
        self.kl_samples = kl_samples
        self.raw_scale = nn.Parameter(raw_scale)
        self.raw_df = None if raw_df is None else nn.Parameter(raw_df)
        self.register_buffer("prior_location", prior_location)

    def extra_repr(self) -> str:
        return f"family={self.family.name!r}, prior={self.prior!r}"

    @property
    def scale(self) -> Tensor:
        """The scale of each weight, at least in float32."""
        raw = to_compute(self.raw_scale)
        return F.softplus(raw).clamp_min(torch.finfo(raw.dtype).tiny)

    @property
    def df(self) -> Tensor | None:
        """The degrees of freedom of each weight."""
        return None if self.raw_df is None else SMALLEST_DF + F.softplus(to_compute(self.raw_df))

    def draw(self, location: Tensor) -> Tensor:
        """The parameter, drawn; inside `one_draw()` the same each time."""
        return modes.kept_draw(self, lambda: self._fresh(location).to(location.dtype))

    def record_kl(self, location: Tensor, drawn: Tensor | None) -> None:
        """Hand the KL to the recorder, once for a pass however often the parameter is used."""
        if recording.kl_is_wanted():
            recording.add_global(self.kl(location, drawn), self)

    def kl(self, location: Tensor, drawn: Tensor | None = None) -> Float[Tensor, ""]:
        """KL to the prior. Without a closed form it is estimated from `drawn` and as many more draws as `kl_samples` asks for."""
        draws: list[Tensor] = []
        if not is_closed(self.family, self.prior):
            draws = [] if drawn is None else [to_compute(drawn)]
            draws += [self._fresh(location) for _ in range(self.kl_samples - len(draws))]
        centre = 0.0 if self.prior_location is None else self.prior_location
        return kl_to_prior(
            self.family,
            to_compute(location) - centre,
            self.scale,
            self.df,
            self.prior,
            [draw - centre for draw in draws],
        )

    def _fresh(self, location: Tensor) -> Tensor:
        scale = self.scale
        return to_compute(location) + scale * self.family.noise(scale, self.df, modes.current_generator())


class RandomParameters(modes.DrawsOnce, nn.Module):
    """A module that runs with drawn parameters. It is mixed into the module's own class."""

    weight_posteriors: nn.ModuleDict

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        locations: dict[str, Tensor] = {name: self.get_parameter(name) for name in self.weight_posteriors}
        drawn = self._drawn(locations) if self._samples() else {}
        self._record(locations, drawn)
        if not drawn:
            return super().forward(*args, **kwargs)  # pyright: ignore[reportAttributeAccessIssue]
        copy = copied(self, drawn)
        output = super(RandomParameters, copy).forward(*args, **kwargs)  # pyright: ignore[reportAttributeAccessIssue]
        self._take_over(copy, drawn)
        return output

    def _take_over(self, copy: nn.Module, drawn: dict[str, Tensor]) -> None:
        """What the forward pass assigned to attributes of the copy is the module's own."""
        for name, attribute in copy.__dict__.items():
            if name not in drawn and name != "_compiled_call_impl" and self.__dict__.get(name, self) is not attribute:
                self.__dict__[name] = attribute

    def _samples(self) -> bool:
        return self.training or modes.is_sampling()

    def _drawn(self, locations: dict[str, Tensor]) -> dict[str, Tensor]:
        return {name: self._posterior(name).draw(location) for name, location in locations.items()}

    def _record(self, locations: dict[str, Tensor], drawn: dict[str, Tensor]) -> None:
        for name, location in locations.items():
            self._posterior(name).record_kl(location, drawn.get(name))

    def _posterior(self, name: str) -> WeightPosterior:
        posterior = self.weight_posteriors[name]
        assert isinstance(posterior, WeightPosterior)
        return posterior


class LocallyRandom(RandomParameters):
    """A module that is linear in its parameters: in training it draws its outputs and not its parameters, where the family can.

    Every row then has noise of its own, which makes gradients less noisy (Kingma et al. 2015). Predictions draw the weights, so
    that all tokens and all inputs of a sample see one network.
    """

    def _samples(self) -> bool:
        return super()._samples() and not self._is_local()

    def _is_local(self) -> bool:
        stable = all(self._posterior(name).family.is_stable for name in self.weight_posteriors)
        return stable and self.training and not modes.is_sampling()

    def _noisy(
        self, output: Tensor, linear: Linear, x: Tensor, weight: str, bias: str, rows: slice = slice(None)
    ) -> Tensor:
        """`output`, which was computed with the locations, plus the noise of its weights and biases, or of these `rows` of them."""
        posterior = self._posterior(weight)
        scales = [
            self._posterior(name).scale[rows].to(x.dtype) if name in self.weight_posteriors else None
            for name in (weight, bias)
        ]
        assert scales[0] is not None
        scale = posterior.family.scale_of_sums(linear, x, scales[0], scales[1])
        return output + scale * posterior.family.noise(scale, None, modes.current_generator())


class RandomLinear(LocallyRandom):
    """`nn.Linear`."""

    def forward(self, x: Tensor) -> Tensor:
        output = super().forward(x)
        return self._noisy(output, F.linear, x, "weight", "bias") if self._is_local() else output


class RandomConvolution(LocallyRandom):
    """`nn.Conv1d`, `nn.Conv2d`, `nn.Conv3d`."""

    def forward(self, x: Tensor) -> Tensor:
        output = super().forward(x)
        convolve: Linear = self._conv_forward  # pyright: ignore[reportAssignmentType]
        return self._noisy(output, convolve, x, "weight", "bias") if self._is_local() else output


class RandomAttention(LocallyRandom):
    """The projections of `bayesattn.nn.MultiheadAttention`; its output projection is a linear layer of its own."""

    def _project_inputs(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        projected = super()._project_inputs(query, key, value)  # pyright: ignore[reportAttributeAccessIssue]
        if not self._is_local():
            return projected
        packed = "in_proj_weight" in self.weight_posteriors
        noisy = []
        for index, (x, output) in enumerate(zip((query, key, value), projected, strict=True)):
            width = output.shape[-1]
            rows = slice(index * width, (index + 1) * width)
            name = "in_proj_weight" if packed else f"{'qkv'[index]}_proj_weight"
            noisy.append(self._noisy(output, F.linear, x, name, "in_proj_bias", rows))
        return noisy[0], noisy[1], noisy[2]


_KINDS: tuple[tuple[type[nn.Module], type[RandomParameters]], ...] = (
    (nn.Linear, RandomLinear),
    (nn.modules.conv._ConvNd, RandomConvolution),
    (MultiheadAttention, RandomAttention),
)
_CLASSES: dict[tuple[type[nn.Module], type[nn.Module]], type[nn.Module]] = {}


def mix_in(module: nn.Module, mixin: type[nn.Module]) -> None:
    """Give `module` the class that is `mixin` before its own."""
    own = type(module)
    if (mixin, own) not in _CLASSES:
        _CLASSES[mixin, own] = type(f"{mixin.__name__}({own.__name__})", (mixin, own), {"__module__": own.__module__})
    module.__class__ = _CLASSES[mixin, own]


def randomise(module: nn.Module, posteriors: dict[str, WeightPosterior]) -> None:
    """Make the parameters of `module` random, in place."""
    mixin = next((mixin for kind, mixin in _KINDS if isinstance(module, kind)), RandomParameters)
    mix_in(module, mixin)
    module.weight_posteriors = nn.ModuleDict(posteriors)


def call_every_part(model: nn.Module, chosen: dict[str, nn.Module]) -> None:
    """Switch off what of torch's own code goes past the forward of the chosen modules and reads their parameters itself."""
    changed = set(map(id, chosen.values()))
    for module in model.modules():
        inside = any(id(part) in changed for part in module.modules())
        if not inside:
            continue
        if type(module) is nn.MultiheadAttention:
            module.__class__ = MultiheadAttention
            module.set_posterior(Softmax())  # pyright: ignore[reportCallIssue]
        if isinstance(module, nn.TransformerEncoderLayer):
            module.activation_relu_or_gelu = 0  # the condition of its eval fast path that means nothing else
        if isinstance(module, nn.TransformerEncoder):
            module.use_nested_tensor = False
