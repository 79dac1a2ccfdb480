"""Multi-head denoising attention, a drop-in for torch's attention module."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bayesattn.nn.multihead import additive_mask, is_padding
from bayesattn.nvib.attention import Compat, check_compat
from bayesattn.nvib.layer import NVIB
from bayesattn.nvib.mixture import Mixture
from bayesattn.nvib.projected import Projections, ReadsLatent, mask_of_components
from bayesattn.scopes import modes
from bayesattn.support.annotations import Float


class DecodingCache:
    """The latent of the tokens so far, the prior's component in front; give the same one to every step of a decoder."""

    def __init__(self) -> None:
        self.mixture: Mixture | None = None


class DenoisingMultiheadAttention(ReadsLatent, nn.MultiheadAttention):
    """`torch.nn.MultiheadAttention` over the latent mixture of an NVIB layer: same arguments, masks and weights.

    Keys and values are both the latent: `key` is either vectors, which this module's own `nvib` turns into one, or a `Mixture` that was
    made elsewhere (one NVIB layer between encoder and decoder, read by every layer of the decoder; its padding is the mixture's own).
    In training and inside `sampling()` it attends to drawn points, on torch's fused kernels; else to the Gaussians, in closed form.
    The prior's component is always visible. Returned weights are those of the components, the prior's first.

    Args:
        embed_dim, num_heads, dropout, bias, batch_first, device, dtype: as torch's.
        nvib: an `NVIB`, of which this module gets its own copy; None if it will only be given mixtures.
        compat: see `denoising_attention`; by default that of `nvib`.

    >>> import torch, bayesattn as ba
    >>> attention = ba.nvib.DenoisingMultiheadAttention(16, 4, nvib=ba.nvib.NVIB(alpha="relu"), batch_first=True)
    >>> x = torch.randn(2, 5, 16)
    >>> output, weights = attention(x, x, x)
    >>> output.shape, weights.shape
    (torch.Size([2, 5, 16]), torch.Size([2, 5, 6]))
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        *,
        nvib: NVIB | None = None,
        compat: Compat | None = None,
        batch_first: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__(
            embed_dim, num_heads, dropout=dropout, bias=bias, batch_first=batch_first, device=device, dtype=dtype
        )
        self.set_nvib(nvib, compat)

    def set_nvib(self, nvib: NVIB | None, compat: Compat | None = None) -> None:
        """Give this layer its own copy of `nvib`."""
        self.moments = None
        self.nvib = None
        self.compat: Compat | None = check_compat(compat)
        # torch's encoder layers read this private flag and, where it is True, skip this module's forward in eval mode
        self._qkv_same_embed_dim = False
        if nvib is not None:
            weight = self.out_proj.weight
            bound = nvib.bind(dim=self.embed_dim, num_heads=self.num_heads)
            self.nvib = bound.to(weight.device, weight.dtype).train(self.training)
            self.compat = self.compat or bound.compat

    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        query: Tensor,
        key: Tensor | Mixture,
        value: Tensor | Mixture | None = None,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
        cache: DecodingCache | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """As torch's; `value` must be `key`, or None, and a float `key_padding_mask` says padding where it is -inf, and nothing else.

        `attn_mask` has a column for each token; the prior's component is visible through every mask. `is_causal` without `attn_mask` masks
        the future. With a `cache`, `key` holds the new tokens alone, every query sees the past and itself, and no KL is recorded: it
        is for decoding.
        """
        if value is not None and not _same(key, value):
            raise ValueError("value must be key (or None): denoising attention reads keys and values from one latent.")
        batched = query.dim() == 3
        if query.is_nested or query.dim() not in (2, 3) or (isinstance(key, Tensor) and key.dim() != query.dim()):
            raise ValueError("query and key must be padded tensors with 3 dimensions, or both 2 without a batch.")
        query = self._batch_first(query, batched)
        if isinstance(key, Tensor):
            key = self._batch_first(key, batched)
            if key_padding_mask is not None:
                key_padding_mask = is_padding(key_padding_mask if batched else key_padding_mask.unsqueeze(0))
        latent = self._latent(key, key_padding_mask, cache)
        if attn_mask is None and (is_causal or cache is not None):
            attn_mask = self._future(key, cache, query)
        mask = None if attn_mask is None else self._of_components(attn_mask, query, latent)
        dropout_p = self.dropout if self.training else 0.0
        of_query, projections = self._split()
        heads = F.linear(query, *of_query).unflatten(-1, (self.num_heads, self.head_dim)).transpose(1, 2)
        output, weights = projections.attend(
            heads, latent, mask, dropout_p=dropout_p, compat=self.compat, need_weights=need_weights
        )
        output = self.out_proj(output.transpose(1, 2).flatten(2))
        shown = (weights.mean(1) if average_attn_weights else weights) if need_weights and weights is not None else None
        if not batched:
            return output.squeeze(0), None if shown is None else shown.squeeze(0)
        return (output if self.batch_first else output.transpose(0, 1)), shown

    def _batch_first(self, x: Tensor, batched: bool) -> Tensor:
        if not batched:
            return x.unsqueeze(0)
        return x if self.batch_first else x.transpose(0, 1)

    def _latent(self, key: Tensor | Mixture, padding: Tensor | None, cache: DecodingCache | None) -> Mixture:
        if isinstance(key, Mixture):
            if padding is not None or cache is not None:
                raise ValueError(
                    "key is a Mixture, which has its own padding and needs no cache: leave key_padding_mask and cache None."
                )
            return key
        if self.moments is not None:
            return self.moments.observe(key, padding, self.head_dim)
        if self.nvib is None:
            raise ValueError(
                "This layer has no NVIB of its own: give it a Mixture as key, or make it with nvib=NVIB(...)."
            )
        if cache is None:
            return self.nvib(key, padding)
        if self.training:
            raise ValueError("cache is for decoding: call eval() first, and use sampling() to draw.")
        past = self.nvib.prior_latent(key) if cache.mixture is None else cache.mixture
        cache.mixture = past.append(self.nvib.latent(self.nvib.components(key, padding)))
        return cache.mixture

    def _future(self, key: Tensor | Mixture, cache: DecodingCache | None, query: Tensor) -> Tensor:
        """True at the tokens after each query: the queries are the last tokens of what the cache holds, else the first."""
        if isinstance(key, Mixture):
            raise ValueError("is_causal needs vectors as key, a Mixture has no order: pass attn_mask.")
        queries, tokens = query.shape[1], key.shape[1]
        if cache is not None and cache.mixture is not None and self.nvib is not None:
            tokens = cache.mixture.mask.shape[1] // (self.nvib.kappa if modes.draws_now(self.nvib) else 1) - 1
        past = tokens - queries if cache is not None else 0
        return torch.ones(queries, tokens, dtype=torch.bool, device=query.device).triu(past + 1)

    def _of_components(
        self, attn_mask: Tensor, query: Tensor, latent: Mixture
    ) -> Float[Tensor, "#batch #heads query components"]:
        """The tokens' mask as an additive one of the components: the prior visible, each token's κ points alike."""
        batch, queries, _ = query.shape
        components = latent.mask.shape[1]
        prior = int(self.moments is None)  # while the keys are measured, there is none
        columns = attn_mask.shape[-1] + prior
        fits = attn_mask.dim() == 2 or (attn_mask.dim() == 3 and attn_mask.shape[0] == batch * self.num_heads)
        if not fits or attn_mask.shape[-2] != queries or components % columns:
            raise ValueError(
                f"attn_mask must have shape (query, token) or (batch * heads, query, token) for {queries} queries, {batch} examples, "
                f"{self.num_heads} heads and a latent of {components} components, the prior's among them; got {tuple(attn_mask.shape)}."
            )
        mask = attn_mask.view(-1, self.num_heads if attn_mask.dim() == 3 else 1, *attn_mask.shape[-2:])
        return mask_of_components(additive_mask("attn_mask", mask, query.dtype), latent, bool(prior))

    def _split(self) -> tuple[tuple[Tensor, Tensor | None], Projections]:
        """Weight and bias of the queries, and the projections of keys and values."""
        biases = (None, None, None) if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        to_query, to_key, to_value = self.in_proj_weight.chunk(3)
        return (to_query, biases[0]), Projections(self.num_heads, to_key, biases[1], to_value, biases[2])


def _same(key: Tensor | Mixture, value: Tensor | Mixture) -> bool:
    """Whether both are one object, or two views of the same numbers."""
    if value is key or isinstance(key, Mixture) or isinstance(value, Mixture):
        return value is key
    return (key.data_ptr(), key.shape, key.stride()) == (value.data_ptr(), value.shape, value.stride())
