"""NVIB: a nonparametric variational information bottleneck for attention (Henderson and Fehr 2023; Fehr and Henderson 2024)."""

from bayesattn.nvib.attention import denoising_attention
from bayesattn.nvib.divergence import gaussian_kl, pseudo_count_kl
from bayesattn.nvib.identity import identity
from bayesattn.nvib.layer import NVIB
from bayesattn.nvib.mixture import Mixture
from bayesattn.nvib.multihead import DecodingCache, DenoisingMultiheadAttention

__all__ = [
    "NVIB",
    "DecodingCache",
    "DenoisingMultiheadAttention",
    "Mixture",
    "denoising_attention",
    "gaussian_kl",
    "identity",
    "pseudo_count_kl",
]
