"""A small vision transformer."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from bayesattn.support import checks
from bayesattn.support.annotations import Float


class ViT(nn.Module):
    """Patches → linear embedding + learned positions → transformer encoder (GELU) → mean over patches → class logits.

    >>> import torch
    >>> ViT(image_size=8, patch_size=2, classes=10)(torch.randn(3, 1, 8, 8)).shape
    torch.Size([3, 10])
    """

    def __init__(
        self,
        image_size: int,
        patch_size: int,
        classes: int,
        channels: int = 1,
        dim: int = 32,
        depth: int = 2,
        heads: int = 1,
        feedforward: int | None = None,
        dropout: float = 0.0,
    ):
        super().__init__()
        if image_size % patch_size:
            raise ValueError(f"image_size={image_size} must be a multiple of patch_size={patch_size}.")
        if dim % checks.whole("heads", heads):
            raise ValueError(f"dim={dim} must be a multiple of heads={heads}.")
        patches = (image_size // patch_size) ** 2
        self.image_shape = (channels, image_size, image_size)
        self.patch_size = patch_size
        self.embedding = nn.Linear(channels * patch_size**2, dim)
        self.positions = nn.Parameter(torch.randn(1, patches, dim) * 0.02)
        layer = nn.TransformerEncoderLayer(
            dim, heads, feedforward or 4 * dim, dropout, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, depth, norm=nn.LayerNorm(dim), enable_nested_tensor=False)
        self.head = nn.Linear(dim, classes)

    def forward(self, images: Float[Tensor, "batch channels height width"]) -> Float[Tensor, "batch classes"]:
        if tuple(images.shape[1:]) != self.image_shape:
            raise ValueError(
                f"images must be [batch, {', '.join(map(str, self.image_shape))}], got {tuple(images.shape)}."
            )
        size = self.patch_size
        patches = nn.functional.unfold(images, size, stride=size).transpose(1, 2)
        hidden = self.encoder(self.embedding(patches) + self.positions)
        return self.head(hidden.mean(1))
