"""The attention function that transformers calls."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import bayesattn as ba
from bayesattn.convert.transformers import attention_function
from bayesattn.convert.transformers.surroundings import PassesOnInput, padding_of_queries

pytest.importorskip("transformers", reason="needs the hf extra: pip install 'bayesattn[hf]'")

from helpers.architectures import BY_NAME


def layer(posterior: ba.Posterior, name: str = "Llama") -> Any:
    model: Any = ba.convert(BY_NAME[name].build(), posterior)
    return model.model.layers[0].self_attn


def tensors() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return torch.randn(2, 4, 5, 8), torch.randn(2, 2, 5, 8), torch.randn(2, 2, 5, 8)


def test_attention_and_masks_are_registered_under_one_name() -> None:
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface

    layer(ba.Softmax())
    assert AttentionInterface()[attention_function.NAME] is attention_function.attention
    assert attention_function.NAME in AttentionMaskInterface()


def test_a_soft_cap_is_applied_before_the_noise() -> None:
    module = layer(ba.LogNormal(sigma=1.5)).train()
    query, key, value = tensors()
    generator = torch.Generator().manual_seed(3)
    with ba.sampling(generator):
        output, weights = attention_function.attention(
            module, query, key, value, None, scaling=3.0, softcap=0.5, is_causal=False, output_attentions=True
        )
    key, value = key.repeat_interleave(2, 1), value.repeat_interleave(2, 1)
    scores = torch.tanh(3.0 * query @ key.transpose(2, 3) / 0.5) * 0.5
    generator = torch.Generator().manual_seed(3)
    expected, drawn = ba.attend_scores(scores, key, value, module.posterior, generator=generator)  # pyright: ignore
    torch.testing.assert_close(weights, drawn)
    torch.testing.assert_close(output, expected.transpose(1, 2))
    assert not torch.allclose(weights, scores.softmax(-1), atol=0.05)


@pytest.mark.parametrize("kind", ["none", "boolean", "additive"])
def test_a_position_bias_joins_every_kind_of_mask(kind: str) -> None:
    module = layer(ba.Softmax())
    query, key, value = tensors()
    bias = torch.randn(1, 4, 5, 5, requires_grad=True)
    allowed = torch.rand(2, 1, 5, 5) > 0.3
    allowed[..., 0] = True
    masks = {
        "none": None,
        "boolean": allowed,
        "additive": torch.zeros(2, 1, 5, 5).masked_fill(~allowed, torch.finfo().min),
    }
    output, _ = attention_function.attention(
        module, query, key, value, masks[kind], is_causal=False, position_bias=bias
    )
    scores = query @ key.repeat_interleave(2, 1).transpose(2, 3) / 8**0.5 + bias
    if kind != "none":
        scores = scores.masked_fill(~allowed, -torch.inf)
    torch.testing.assert_close(output, (scores.softmax(-1) @ value.repeat_interleave(2, 1)).transpose(1, 2))
    output.square().sum().backward()
    assert bias.grad is not None
    assert bias.grad.abs().max() > 0


def test_without_a_mask_a_causal_layer_is_causal() -> None:
    module = layer(ba.Weibull(k=1.0)).train()
    module.config.output_attentions = False
    query, key, value = tensors()
    _, weights = attention_function.attention(module, query, key, value, None, output_attentions=True)
    assert weights is not None
    assert (weights.triu(1) == 0).all()
    _, weights = attention_function.attention(module, query, key, value, None, is_causal=False, output_attentions=True)
    assert weights is not None
    assert (weights > 0).all()


def test_a_layer_that_does_not_say_is_not_causal() -> None:
    """As transformers' eager attention, to which causality is a mask: ALIGN's text layers have no `is_causal`."""
    module = layer(ba.Softmax())
    del module.is_causal  # pyright: ignore[reportAttributeAccessIssue]
    query, key, value = tensors()
    _, weights = attention_function.attention(module, query, key, value, None, output_attentions=True)
    assert weights is not None
    assert (weights > 0).all()


def test_a_sink_is_one_more_key_without_a_value() -> None:
    module = layer(ba.Softmax())
    query, key, value = tensors()
    sinks = torch.tensor([-1.0, 0.0, 1.0, 2.0])[: query.shape[1]]
    for mask, causal in ((None, True), (None, False), (torch.rand(query.shape[0], 1, 5, 5) > 0.3, False)):
        output, weights = attention_function.attention(
            module, query, key, value, mask, is_causal=causal, s_aux=sinks, output_attentions=True
        )
        keys, values = key.repeat_interleave(2, 1), value.repeat_interleave(2, 1)
        scores = (query @ keys.transpose(-2, -1)) * query.shape[-1] ** -0.5
        blocked = torch.ones(5, 5).triu(1).bool() if causal else torch.zeros(5, 5).bool() if mask is None else ~mask
        scores = scores.masked_fill(blocked, -torch.inf)
        column = sinks.view(1, -1, 1, 1).expand(*scores.shape[:3], 1)
        expected = torch.cat([scores, column], -1).softmax(-1)[..., :-1]
        assert weights is not None
        torch.testing.assert_close(weights, expected)
        torch.testing.assert_close(output, (expected @ values).transpose(1, 2))


def test_unknown_arguments_raise_and_are_never_swallowed() -> None:
    module = layer(ba.Weibull(k=1.0))
    query, key, value = tensors()
    with pytest.raises(TypeError, match=r"passes alibi= to its attention.*does not know this argument.*where="):
        attention_function.attention(module, query, key, value, None, alibi=torch.zeros(4))
    with pytest.raises(TypeError, match=r"was given cu_seq_lens_q=, which packs several sequences.*attention_mask="):
        attention_function.attention(module, query, key, value, None, cu_seq_lens_q=torch.tensor([0, 5]))
    attention_function.attention(
        module, query, key, value, None, s_aux=None, sliding_window=3, position_ids=torch.arange(5)
    )


def test_a_layer_left_with_flash_attention_is_refused() -> None:
    model: Any = BY_NAME["Llama"].build()
    model.config._attn_implementation_internal = "flash_attention_2"
    ba.convert(model, ba.Weibull(k=1.0), where="last")
    with pytest.raises(ValueError, match=r"would run 'flash_attention_2'.*set_attn_implementation\('sdpa'\)"):
        model(torch.tensor([[3, 4]]))


def test_learned_queries_before_a_text_are_not_padding() -> None:
    """InstructBLIP's Q-Former: the mask is of queries and text, cross-attention has the queries alone."""
    from transformers.models.instructblip.configuration_instructblip import InstructBlipQFormerConfig
    from transformers.models.instructblip.modeling_instructblip import InstructBlipQFormerModel

    config = InstructBlipQFormerConfig(
        vocab_size=31,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        encoder_hidden_size=16,
        cross_attention_frequency=1,
    )
    model = ba.convert(InstructBlipQFormerModel(config).eval(), ba.Weibull(k=5.0))
    mask = torch.tensor([[1] * 8, [1, 1, 1, 1, 1, 0, 0, 0]])
    for text in (5, 3):  # as many as there are queries, too
        with torch.no_grad(), ba.record() as latents:
            model(
                torch.randint(3, 31, (2, text)),
                attention_mask=mask[:, : 3 + text],
                query_embeds=torch.randn(2, 3, 16),
                encoder_hidden_states=torch.randn(2, 4, 16),
            )
        itself, cross = (term.rows.tolist() for term in latents.local_terms)
        assert itself == [2 * (3.0 + text), 2 * 5.0]
        assert cross == [2 * 3.0, 2 * 3.0]


def test_queries_that_the_model_was_not_given_have_no_padding() -> None:
    model: Any = nn.Module()
    hook = PassesOnInput(["input_ids", "attention_mask"], "input_ids")
    mask = torch.tensor([[1, 1, 1], [1, 0, 0]])
    hook.before(model, (torch.zeros(2, 3), mask), {})
    try:
        assert padding_of_queries(nn.Identity(), 2, 2) is None
        assert torch.equal(padding_of_queries(nn.Identity(), 2, 3), mask.bool())  # pyright: ignore[reportArgumentType]
        assert padding_of_queries(nn.Identity(), 4, 3) is None
        with_cache = {"input_ids": torch.zeros(2, 1), "attention_mask": mask}
        hook.before(model, (), with_cache)
        assert padding_of_queries(nn.Identity(), 2, 1).tolist() == [[True], [False]]  # pyright: ignore[reportOptionalMemberAccess]
        hook.after(model, (), None)
    finally:
        hook.after(model, (), None)
    assert padding_of_queries(nn.Identity(), 2, 3) is None
