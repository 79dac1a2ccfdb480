"""Feature vectors of the regions of images: what attention over images attends to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from bayesattn.experiments.data.files import DataError
from bayesattn.support.annotations import Bool, Float, Int


@dataclass(frozen=True)
class Regions:
    """The regions of many images, one image after the other; images may have different numbers of them.

    >>> import torch
    >>> regions = Regions(torch.arange(6.0).view(3, 2), torch.tensor([0, 1, 3]), ("cat", "dog"))
    >>> features, mask = regions.of(torch.tensor([1, 0]))
    >>> features.tolist(), mask.tolist()
    ([[[2.0, 3.0], [4.0, 5.0]], [[0.0, 1.0], [0.0, 0.0]]], [[True, True], [True, False]])
    """

    values: Float[Tensor, "regions features"]
    """All vectors; in memory, or mapped from a file."""
    offsets: Int[Tensor, " images_and_one"]
    """Image i has the vectors offsets[i] to offsets[i + 1]."""
    ids: tuple[str, ...]
    """Of every image."""
    source: str = "the features"
    """Where they are from, for messages."""
    shift: Float[Tensor, " features"] | None = None
    scale: Float[Tensor, " features"] | None = None
    """What `of` subtracts from every vector, noise included, and divides it by."""

    @property
    def dim(self) -> int:
        """Features of a region."""
        return self.values.shape[1]

    @property
    def most(self) -> int:
        """Regions of the image that has most."""
        return int(self.offsets.diff().max())

    @cached_property
    def places(self) -> dict[str, int]:
        """The number of each image by its id."""
        return {name: place for place, name in enumerate(self.ids)}

    def find(self, images: Iterable[str], wanted_by: str) -> Int[Tensor, " n"]:
        """The numbers of these images; `wanted_by` says in a message who asks for them."""
        wanted = list(images)
        missing = sorted({name for name in wanted if name not in self.places})
        if missing:
            shown = ", ".join(missing[:5]) + (", …" if len(missing) > 5 else "")
            raise DataError(
                f"{len(missing)} of the {len(set(wanted))} images of {wanted_by} have no features in {self.source}: {shown}. "
                f"The ids there are such as {', '.join(self.ids[:3])}: take features of the same images."
            )
        return torch.tensor([self.places[name] for name in wanted])

    def of(
        self, images: Int[Tensor, " batch"], noise_variance: Float[Tensor, " batch"] | None = None
    ) -> tuple[Float[Tensor, "batch most features"], Bool[Tensor, "batch most"]]:
        """The regions of these images, zeros after the last one, and which of them are real.

        `noise_variance` adds Gaussian noise of this variance to every feature. It is a function of the image: every sample, model
        and method sees the same noise, and a larger variance is the same noise scaled up.
        """
        images = images.cpu()
        starts, counts = self.offsets[images], self.offsets[images + 1] - self.offsets[images]
        slots = torch.arange(int(counts.max()))
        mask = slots < counts.unsqueeze(1)
        features = self.values[(starts.unsqueeze(1) + slots).clamp_max(len(self.values) - 1)].float()
        if noise_variance is not None:
            features = features + noise_variance.cpu().sqrt().view(-1, 1, 1) * self._noise(images, len(slots))
        if self.shift is not None and self.scale is not None:
            features = (features - self.shift) / self.scale
        return features.masked_fill(~mask.unsqueeze(-1), 0.0), mask

    def standardised(self, images: Int[Tensor, " n"]) -> Regions:
        """With mean 0 and variance 1 of every feature over the regions of (at most 500 of) these images."""
        features, mask = self.of(images[:: max(1, len(images) // 500)])
        real = features[mask]
        return replace(self, shift=real.mean(0), scale=real.std(0, correction=0).clamp_min(1e-6))

    def _noise(self, images: Tensor, slots: int) -> Tensor:
        """Standard normal noise of each image."""
        distinct, places = images.unique(return_inverse=True)
        drawn = [
            torch.randn(slots, self.dim, generator=torch.Generator().manual_seed(image)) for image in distinct.tolist()
        ]
        return torch.stack(drawn)[places]


def from_blocks(blocks: Sequence[Tensor], ids: Sequence[str], source: str) -> Regions:
    """The regions of images that are given one by one, [regions, features] each."""
    counts = torch.tensor([len(block) for block in blocks])
    offsets = torch.cat([torch.zeros(1, dtype=torch.long), counts.cumsum(0)])
    return Regions(torch.cat(list(blocks)), offsets, tuple(ids), source)
