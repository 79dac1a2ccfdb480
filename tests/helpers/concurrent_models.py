"""Models of every kind whose predictions must not meet: small, in training mode, each random in a way of its own."""

from __future__ import annotations

import torch
import transformers
from torch import nn

import bayesattn as ba

THREADS = 8


def encoder(dropout: float = 0.5) -> nn.Module:
    layer = nn.TransformerEncoderLayer(16, 2, 16, dropout=dropout, batch_first=True)
    return nn.Sequential(nn.TransformerEncoder(layer, 1, enable_nested_tensor=False), nn.Linear(16, 3))


def attention() -> nn.Module:
    return ba.convert(encoder(), ba.Weibull(k=2.0))


def hugging_face() -> nn.Module:
    config = transformers.BertConfig(
        vocab_size=20, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16
    )
    return ba.convert(transformers.BertForTokenClassification(config), ba.Weibull(k=2.0))


def bottleneck() -> nn.Module:
    config = transformers.BertConfig(
        vocab_size=20, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16
    )
    return ba.convert(transformers.BertForTokenClassification(config), ba.nvib.NVIB())


def mean_field() -> nn.Module:
    return ba.weight_space.mean_field(encoder(), "gaussian", start="model", relative_scale=0.3)


def swag() -> nn.Module:
    model = ba.weight_space.swag(encoder(), rank=3)
    for _ in range(4):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))
        ba.weight_space.collect(model)
    return model


def laplace() -> nn.Module:
    model = encoder(0.0).eval()
    return ba.weight_space.laplace(model, torch.randn(10, 5, 16), where="last", prior_precision=1.0)


def concrete_dropout() -> nn.Module:
    return ba.weight_space.concrete_dropout(encoder(0.0))


def ensemble() -> nn.Module:
    return ba.weight_space.ensemble(encoder, 3)


KINDS = [attention, hugging_face, bottleneck, mean_field, swag, laplace, concrete_dropout, ensemble]


def inputs(model: nn.Module, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    if isinstance(model, transformers.PreTrainedModel):
        return torch.randint(20, (1 + seed % 3, 5), generator=generator)
    return torch.randn(1 + seed % 3, 5, 16, generator=generator)
