"""Images packed into one row: the KL of each goes to the example whose text it stands in."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import bayesattn as ba

pytest.importorskip("transformers", reason="needs the hf extra: pip install 'bayesattn[hf]'")

import transformers

IMAGE = 29


def model(posterior: ba.Posterior) -> Any:
    torch.manual_seed(0)
    config = transformers.Qwen2VLConfig(
        text_config={
            "vocab_size": 31,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "hidden_size": 16,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "intermediate_size": 16,
            "rope_parameters": {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 1e4},
        },
        vision_config={"depth": 2, "embed_dim": 16, "hidden_size": 16, "num_heads": 2, "mlp_ratio": 1, "patch_size": 2},
        image_token_id=IMAGE,
        video_token_id=28,
        vision_start_token_id=27,
    )
    return ba.convert(transformers.Qwen2VLForConditionalGeneration(config).eval(), posterior)


def inputs(grids: list[list[tuple[int, int, int]]]) -> dict[str, Tensor]:
    """A text for each list of images, as long as the longest."""
    generator = torch.Generator().manual_seed(1)
    texts = [[3, *(token for t, h, w in images for token in [*[IMAGE] * (t * h * w // 4), 4])] for images in grids]
    length = max(map(len, texts))
    ids = torch.tensor([text + [0] * (length - len(text)) for text in texts])
    mask = torch.tensor([[1] * len(text) + [0] * (length - len(text)) for text in texts])
    grid = torch.tensor([each for images in grids for each in images])
    pixels = torch.randn(int(grid.prod(-1).sum()), 3 * 2 * 2 * 2, generator=generator)
    given = {"input_ids": ids, "attention_mask": mask, "pixel_values": pixels, "image_grid_thw": grid}
    return {**given, "mm_token_type_ids": (ids == IMAGE).long()}


def kl_of(model: Any, given: dict[str, Tensor]) -> tuple[Tensor, list[list[float]]]:
    with ba.record() as latents, torch.no_grad():
        model(**given)
    return latents.local_kl, [term.elements.tolist() for term in latents.local_terms]


GRIDS = [[(1, 2, 4)], [(1, 4, 4), (1, 2, 2)]]


def test_each_image_counts_to_its_text() -> None:
    posterior = ba.Weibull(k=5.0, prior=ba.ContextualGamma(beta=1.0))
    bayesian = model(posterior)
    together, counts = kl_of(bayesian, inputs(GRIDS))
    heads = 2
    assert counts[:2] == [[heads * 8 * 8.0, heads * (16 * 16 + 4 * 4.0)]] * 2
    assert together.shape == (2,)
    _, counts = kl_of(bayesian, inputs(GRIDS[::-1]))
    assert counts[:2] == [[heads * (16 * 16 + 4 * 4.0), heads * 8 * 8.0]] * 2
    packed = inputs(GRIDS)
    for index, patches in enumerate((slice(0, 8), slice(8, None))):
        alone = inputs([GRIDS[index]])
        alone["pixel_values"] = packed["pixel_values"][patches]
        torch.testing.assert_close(kl_of(bayesian, alone)[0], together[index : index + 1])


def test_the_kl_of_images_has_its_gradient() -> None:
    bayesian = model(ba.Weibull(k=5.0, prior=ba.ContextualGamma(beta=1.0))).train()
    with ba.record() as latents:
        logits = bayesian(**inputs(GRIDS)).logits
    ba.elbo(logits.flatten(1).square().mean(1), latents, kl_reduction="sum", compare_gradients=False).backward()
    networks = [module for name, module in bayesian.named_modules() if name.endswith("prior.network")]
    assert len(networks) == 3
    assert all(network.inner.weight.grad.abs().max() > 0 for network in networks)  # pyright: ignore


def test_images_that_fit_no_text_are_refused_and_not_guessed() -> None:
    bayesian = model(ba.Weibull(k=5.0))
    given = inputs(GRIDS)
    embeds = bayesian.get_input_embeddings()(given.pop("input_ids")).detach()
    embeds[given["mm_token_type_ids"].bool()] = bayesian.get_input_embeddings()(torch.tensor(IMAGE)).detach()
    with ba.record() as latents, torch.no_grad():
        bayesian(inputs_embeds=embeds, **given)
    with pytest.raises(ValueError, match="different batch sizes"):
        _ = latents.local_kl


def test_softmax_gives_the_original() -> None:
    converted = model(ba.Softmax())
    with torch.no_grad():
        ours = converted(**inputs(GRIDS)).logits
        theirs = ba.revert(converted)(**inputs(GRIDS)).logits
    mask = inputs(GRIDS)["attention_mask"].bool()
    torch.testing.assert_close(ours[mask], theirs[mask], atol=1e-5, rtol=1e-5)
