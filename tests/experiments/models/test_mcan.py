"""MCAN: no noise is softmax, padding never leaks, regions have no order, posteriors go where they are put."""

from __future__ import annotations

import pytest
import torch

import bayesattn as ba
from bayesattn.experiments.models.mcan import MCAN

SIZES = {"dim": 8, "heads": 2, "layers": 2, "embedding_dim": 6, "dropout": 0.0}


def batch() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    mask = torch.tensor([[True] * 5, [True, True, True, False, False]])
    return torch.randn(2, 5, 7), mask, torch.tensor([[4, 5, 6], [7, 8, 0]])


def test_a_posterior_without_noise_is_softmax() -> None:
    torch.manual_seed(3)
    plain = MCAN(10, 4, 7, **SIZES)
    torch.manual_seed(3)
    random = MCAN(10, 4, 7, ba.LogNormal(sigma=1e-7), **SIZES)
    inputs = batch()
    torch.testing.assert_close(random(*inputs), plain(*inputs), atol=1e-5, rtol=1e-4)
    noisy = MCAN(10, 4, 7, ba.LogNormal(sigma=3.0), **SIZES)
    assert not torch.allclose(noisy(*inputs), noisy(*inputs), atol=1e-3)
    torch.testing.assert_close(noisy.eval()(*inputs), noisy(*inputs))


@pytest.mark.parametrize(
    "posterior", [ba.Weibull(k=1.0), ba.Dirichlet(initial_sharpness=1.0)], ids=["weibull", "dirichlet"]
)
def test_padding_never_leaks_and_counts_in_no_kl(posterior: ba.Posterior) -> None:
    model = MCAN(
        10, 4, 7, {"question": posterior, "image": posterior, "guided": posterior, "reduction": posterior}, **SIZES
    )
    regions, mask, words = batch()
    with ba.record() as alone, ba.sampling(torch.Generator().manual_seed(0)):
        model.eval()(regions, mask, words)
    changed = regions.masked_fill(~mask.unsqueeze(-1), 100.0)
    with ba.record() as again, ba.sampling(torch.Generator().manual_seed(0)):
        second = model(changed, mask, words)
    torch.testing.assert_close(alone.local_kl, again.local_kl)
    with ba.sampling(torch.Generator().manual_seed(0)):
        torch.testing.assert_close(model(regions, mask, words), second)
    # the same example without its padding: same prediction, same KL
    with ba.record() as short:
        cut = model(regions[1:, :3], mask[1:, :3], words[1:, :2])
    with ba.record() as long:
        whole = model(regions[1:], mask[1:], words[1:])
    torch.testing.assert_close(cut, whole)
    torch.testing.assert_close(short.local_kl, long.local_kl, rtol=1e-4, atol=1e-4)


def test_regions_have_no_order_and_words_have() -> None:
    model = MCAN(10, 4, 7, **SIZES).eval()
    regions, mask, words = batch()
    order = torch.tensor([3, 1, 0, 4, 2])
    shuffled = regions[:, order], mask[:, order], words
    torch.testing.assert_close(model(*shuffled), model(regions, mask, words))
    torch.testing.assert_close(model.region_weights(*shuffled), model.region_weights(regions, mask, words)[:, order])
    assert not torch.allclose(model(regions, mask, words.flip(1).contiguous())[0], model(regions, mask, words)[0])


def test_a_unit_gets_the_posterior_of_its_name_alone() -> None:
    model = MCAN(10, 4, 7, {"guided": ba.Weibull(k=5.0)}, **SIZES)
    kinds = {name: type(module).__name__ for name, module in model.named_modules() if isinstance(module, ba.Posterior)}
    random = sorted(name for name, kind in kinds.items() if kind == "Weibull")
    assert random == ["guided_attention.0.attention.posterior", "guided_attention.1.attention.posterior"]
    everywhere = MCAN(10, 4, 7, ba.Weibull(k=5.0), **SIZES)
    with ba.record() as latents:
        everywhere(*batch())
    recorded = {name.split(".")[0] for name, kl in latents.by_layer(everywhere).items() if kl.abs().sum() > 0}
    assert recorded == {"question_attention", "image_attention", "guided_attention"}


def test_the_answer_depends_on_image_and_question() -> None:
    model = MCAN(10, 4, 7, **SIZES).eval()
    regions, mask, words = batch()
    regions.requires_grad_()
    (gradient,) = torch.autograd.grad(model(regions, mask, words)[0, 0], regions)
    assert (gradient[0].abs().sum(-1) > 0).all()
    assert (gradient[1] == 0).all(), "another example's image"


def test_an_unknown_unit_is_answered_with_the_nearest(unchecked: None) -> None:
    with pytest.raises(ValueError, match=r"posterior='guide' is not known. Did you mean 'guided'"):
        MCAN(10, 4, 7, {"guide": ba.Weibull()}, **SIZES)  # pyright: ignore[reportArgumentType]
