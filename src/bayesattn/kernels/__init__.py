"""The fast paths of attention, and the choice among them.

`reference` is plain torch and the definition. `chunked` is plain torch with memory linear in the length. `native` is C++, compiled on
first use, `triton` the same for a GPU. All give the same numbers for the same seed.
"""

from bayesattn.kernels.choice import Backend, Choice, choose, explain, noise_generator, use
from bayesattn.kernels.fused import FusedAttention, Masks, attend_fused

__all__ = [
    "Backend",
    "Choice",
    "FusedAttention",
    "Masks",
    "attend_fused",
    "choose",
    "explain",
    "noise_generator",
    "use",
]
