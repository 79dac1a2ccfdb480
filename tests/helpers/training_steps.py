"""One training step of a small converted model, for the tests that run it compiled or in several processes."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

import bayesattn as ba

POSTERIORS: dict[str, ba.Posterior | ba.nvib.NVIB] = {
    "softmax": ba.Softmax(),
    "weibull": ba.Weibull(3.0, ba.ContextualGamma(0.1, 3)),
    "lognormal": ba.LogNormal(0.5, ba.ContextualLogNormal(1.0, 3)),
    "gaussian": ba.Gaussian(data_dependent=True),
    "dirichlet": ba.Dirichlet(),
    "nvib": ba.nvib.NVIB(alpha="quadratic", delta=0.25, kappa=2),
}


class Model(nn.Module):
    """Two encoder layers; a module of our own, because the compiler does not start in one of torch's."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, x: Tensor, padding: Tensor) -> Tensor:
        return self.encoder(x, src_key_padding_mask=padding)


def build(posterior: ba.Posterior | ba.nvib.NVIB) -> nn.Module:
    """The same model every time, converted."""
    torch.manual_seed(0)
    return ba.convert(Model(), posterior)


def data(batch: int = 4) -> tuple[Tensor, Tensor]:
    """Inputs, and a padding mask."""
    generator = torch.Generator().manual_seed(1)
    padding = torch.zeros(batch, 6, dtype=torch.bool)
    padding[1::2, 4:] = True
    return torch.randn(batch, 6, 16, generator=generator), padding


def step(model: nn.Module, x: Tensor, padding: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """The loss and the KL of one step; gradients are left in the parameters."""
    torch.manual_seed(seed)
    with ba.record() as latents:
        output = model(x, padding)
    nll = output.square().mean(-1).masked_fill(padding, 0.0)
    loss = ba.elbo(nll, latents, kl_weight=0.1, kl_reduction="sum", compare_gradients=False)
    loss.backward()
    return loss.loss.detach(), latents.local_kl.detach()


def gradients(model: nn.Module) -> dict[str, Tensor]:
    """All gradients, by name without the prefixes of wrappers."""
    found = {}
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        whole = parameter.grad.full_tensor() if isinstance(parameter.grad, DTensor) else parameter.grad.clone()
        found[name.replace("_orig_mod.", "").removeprefix("module.")] = whole
    return found
