"""Converted timm models."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

import bayesattn as ba
from helpers.torchvision_stand_in import import_timm

timm = import_timm()

SMALL = {"img_size": 32, "patch_size": 8, "embed_dim": 24, "depth": 2, "num_heads": 3, "num_classes": 5}
MODELS: dict[str, tuple[str, dict[str, Any], int]] = {
    "ViT": ("vit_tiny_patch16_224", SMALL, 2),
    "DeiT": ("deit_tiny_distilled_patch16_224", SMALL, 2),
    "BEiT": ("beit_base_patch16_224", {**SMALL, "init_values": 1.0}, 2),
    "EVA-02": ("eva02_tiny_patch14_224", SMALL, 2),
    "PVT v2": (
        "pvt_v2_b0",
        {
            "depths": (1, 1, 1, 1),
            "embed_dims": (8, 16, 24, 32),
            "num_heads": (1, 2, 3, 4),
            "sr_ratios": (1, 1, 1, 1),
            "num_classes": 5,
        },
        4,
    ),
}
every_model = pytest.mark.parametrize("name", MODELS)


def build(name: str) -> Any:
    torch.manual_seed(0)
    architecture, settings, _ = MODELS[name]
    model = timm.create_model(architecture, **settings).eval()
    for name, weight in model.named_parameters():
        if weight.dim() >= 2 and "pos" not in name:  # a fresh model's attention is nearly uniform: make it matter
            torch.nn.init.xavier_normal_(weight, gain=2.0)
    return model


def images() -> torch.Tensor:
    return torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(1))


@every_model
def test_softmax_gives_the_original_and_every_layer_is_ours(name: str) -> None:
    model, x = build(name), images()
    expected, keys = model(x), list(model.state_dict())
    assert ba.convert(model, ba.Softmax()) is model
    assert list(model.state_dict()) == keys
    with ba.record() as latents:
        torch.testing.assert_close(model(x), expected, atol=1e-4, rtol=1e-4)
    assert len(latents.local_terms) == MODELS[name][2]
    assert latents.local_kl.shape == (2,)
    torch.testing.assert_close(copy.deepcopy(model)(x), expected, atol=1e-4, rtol=1e-4)
    ba.revert(model)
    assert torch.equal(model(x), expected)


@every_model
def test_noise_is_fresh_and_examples_do_not_mix(name: str) -> None:
    model, x = ba.convert(build(name), ba.Weibull(k=5.0)), images()
    changed = x.clone()
    changed[1] = 0.0
    with ba.sampling(), torch.no_grad():
        torch.manual_seed(1)
        first, second = model(x), model(x)
        torch.manual_seed(1)
        other = model(changed)
    assert (first - second).abs().max() > 1e-3
    assert torch.equal(first[0], other[0])
    assert not torch.equal(first[1], other[1])


def test_the_prior_is_trained_and_layers_are_chosen() -> None:
    model = ba.convert(build("ViT"), ba.Weibull(k=5.0, prior=ba.ContextualGamma(beta=1.0)), where="last").train()
    with ba.record() as latents:
        logits = model(images())
    assert list(latents.by_layer(model)) == ["blocks.1.attn.posterior"]
    ba.elbo(logits.logsumexp(-1), latents, kl_reduction="sum", compare_gradients=False).backward()
    assert model.blocks[1].attn.posterior.prior.network.inner.weight.grad.abs().max() > 0


def test_a_layer_that_was_not_fused_is_itself_again_after_revert() -> None:
    model, x = build("ViT"), images()
    model.blocks[0].attn.fused_attn = False
    expected = model(x)
    ba.convert(model, ba.Softmax())
    torch.testing.assert_close(model(x), expected, atol=1e-4, rtol=1e-4)
    ba.revert(model)
    assert [block.attn.fused_attn for block in model.blocks] == [False, True]


STAGES = {"depths": (1, 1, 1, 1), "num_heads": (1, 1, 1, 1)}


@pytest.mark.parametrize(
    ("architecture", "settings", "reason"),
    [
        ("swin_tiny_patch4_window7_224", {**STAGES, "embed_dim": 8}, "attends inside windows"),
        ("twins_svt_small", {**STAGES, "embed_dims": (8, 8, 8, 8)}, "attends inside windows"),
        ("cait_xxs24_224", {"depth": 1, "embed_dim": 16}, r"does not call F\.scaled_dot_product_attention"),
        ("xcit_nano_12_p16_224", {"depth": 1, "embed_dim": 16}, "does not say how many heads"),
    ],
)
def test_other_attention_is_refused_with_the_reason(architecture: str, settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        ba.convert(timm.create_model(architecture, **settings), ba.Weibull(k=5.0))


def test_a_layer_that_goes_another_way_is_noticed() -> None:
    model = ba.convert(build("ViT"), ba.Weibull(k=5.0))
    model.blocks[0].attn.fused_attn = False
    with pytest.raises(RuntimeError, match=r"made 0 calls of F\.scaled_dot_product_attention"):
        model(images())
