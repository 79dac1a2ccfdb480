"""Hugging Face layers that compute attention by themselves: their softmax redirected to a posterior."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import bayesattn as ba

pytest.importorskip("transformers", reason="needs the hf extra: pip install 'bayesattn[hf]'")

import transformers

from bayesattn.convert.transformers import redirection as redirection_module
from bayesattn.convert.transformers.attention_function import Passage
from bayesattn.convert.transformers.layer_sizes import sizes
from bayesattn.convert.transformers.redirection import Redirection
from helpers import support_matrix

TEXT: dict[str, Any] = {
    "vocab_size": 31,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "max_position_embeddings": 32,
}


@pytest.mark.parametrize(
    "name", ["deberta-v2", "bloom", "xlnet", "swinv2", "swin", "gpt_neox", "gpt_oss", "longformer"]
)
def test_architectures_are_right_in_every_column_that_applies(name: str) -> None:
    matrix, trial = support_matrix.load(), support_matrix.trial(name)
    for column in ("equal", "predict", "train", "generate"):
        words = matrix.outcome(matrix.COLUMNS[column], trial)
        assert words.partition(":")[0] == "right" or words == "not applicable: it does not generate", column


def attention(query: Tensor, key: Tensor, mask: Tensor, how: str) -> Tensor:
    """A softmax of scores, as models write it."""
    if how == "bmm":
        scores = torch.bmm(query.flatten(0, 1), key.flatten(0, 1).transpose(1, 2)) + mask.expand(2, 3, 4, 5).flatten(
            0, 1
        )
        return torch.softmax(scores, dim=-1, dtype=torch.float32).unflatten(0, (2, 3))
    if how == "baddbmm":
        added = mask.expand(2, 3, 4, 5).flatten(0, 1)
        scores = added.baddbmm(batch1=query.flatten(0, 1), batch2=key.flatten(0, 1).transpose(1, 2))
        return F.softmax(scores.view(2, 3, 4, 5), -1)
    if how == "einsum":
        scores = torch.einsum("ibnd,jbnd->bnij", query.permute(2, 0, 1, 3), key.permute(2, 0, 1, 3))
        return nn.Softmax(dim=-1)(scores + mask)
    return (query @ key.transpose(-2, -1) + mask).softmax(-1)


@pytest.mark.parametrize("how", ["bmm", "baddbmm", "einsum", "matmul"])
@pytest.mark.parametrize("blocking", [-torch.inf, torch.finfo(torch.float32).min, -1e30, -1e4])
def test_weights_and_kl_are_those_of_attention_with_a_mask(how: str, blocking: float) -> None:
    torch.manual_seed(0)
    query, key = torch.randn(2, 3, 4, 8), torch.randn(2, 3, 5, 8)
    allowed = torch.tensor([[True, True, True, True, True], [True, False, True, False, False]])[:, None, None]
    mask = torch.zeros(2, 1, 1, 5).masked_fill(~allowed, blocking)
    posterior = ba.Weibull(k=2.0, prior=ba.ContextualGamma(beta=0.5)).bind(num_heads=3, head_dim=8)
    torch.manual_seed(1)
    with ba.record() as ours, ba.sampling(), Redirection(nn.Identity(), posterior, 3, Passage({})) as redirection:
        weights = attention(query, key, mask, how)
    redirection.check()
    torch.manual_seed(1)
    with ba.record() as expected, ba.sampling():
        _, drawn = ba.attend(query, key, key, posterior, allowed, scale=1.0, need_weights=True)
    torch.testing.assert_close(weights, drawn)
    assert (weights[1, :, :, 3] == 0).all()
    torch.testing.assert_close(ours.local_kl, expected.local_kl)
    assert torch.equal(ours.local_terms[0].elements, expected.local_terms[0].elements)


def test_multi_head_attention_forward_has_masks_that_are_true_where_they_block() -> None:
    torch.manual_seed(0)
    states, maps = torch.randn(4, 2, 8), [torch.randn(8, 8) for _ in range(4)]
    posterior = ba.Softmax().bind(num_heads=2, head_dim=4)
    future = torch.ones(4, 4, dtype=torch.bool).triu(1)
    padding = torch.tensor([[False] * 4, [False, False, False, True]])

    def attended(mask: Tensor) -> Tensor:
        given: dict[str, Any] = dict(zip(("q_proj_weight", "k_proj_weight", "v_proj_weight"), maps[:3], strict=True))
        padded = padding if mask.dtype == torch.bool else None
        given.update(use_separate_proj_weight=True, key_padding_mask=padded, attn_mask=mask, training=False)
        rest = (None, torch.zeros(24), None, None, False, 0.0, maps[3], None)
        return F.multi_head_attention_forward(states, states, states, 8, 2, *rest, **given)[0]

    for mask in (future, future.expand(4, 4, 4), torch.zeros(4, 4).masked_fill(future, -torch.inf)):
        expected = attended(mask)
        with Redirection(nn.Identity(), posterior, 2, Passage({})) as redirection:
            ours = attended(mask)
        redirection.check()
        torch.testing.assert_close(ours, expected)


def test_padded_queries_do_not_count_where_no_key_is_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    padding = torch.tensor([[True, True, True], [True, False, False]])
    monkeypatch.setattr(redirection_module, "padding_of_model", lambda: padding)
    posterior = ba.Weibull(k=5.0).bind(num_heads=2, head_dim=4)
    query, key = torch.randn(2, 2, 3, 4), torch.randn(2, 2, 5, 4)
    passage = Passage({"hidden_states": query, "key_value_states": key})
    with ba.record() as latents, Redirection(nn.Identity(), posterior, 2, passage):
        F.scaled_dot_product_attention(query, key, key)
    assert latents.local_terms[0].rows.tolist() == [2 * 3.0, 2 * 1.0]


def test_what_is_no_attention_goes_through() -> None:
    posterior = ba.Weibull(k=1.0).bind(num_heads=3, head_dim=8)
    kernel, over_queries = torch.randn(7, 9), torch.randn(2, 3, 4, 5)
    with ba.sampling(), Redirection(nn.Identity(), posterior, 3, Passage({})) as redirection:
        assert torch.equal(kernel.softmax(-1), torch.softmax(kernel, -1))
        torch.testing.assert_close(over_queries.softmax(1).sum(1), torch.ones(2, 4, 5))
    with pytest.raises(RuntimeError, match=r"made no softmax over the keys.*exactly one is needed.*weight_space"):
        redirection.check()


def test_two_softmaxes_and_scores_from_nowhere_are_refused() -> None:
    posterior = ba.Weibull(k=1.0).bind(num_heads=3, head_dim=8)
    query = torch.randn(2, 3, 4, 8)
    with Redirection(nn.Identity(), posterior, 3, Passage({})):
        scores = query @ query.transpose(-2, -1)
        scores.softmax(-1)
        with pytest.raises(RuntimeError, match="Identity made more than one softmax"):
            scores.softmax(-1)
    with (
        pytest.raises(RuntimeError, match=r"no product of queries and keys has the shape \(2, 3, 4, 4\)"),
        Redirection(nn.Identity(), posterior, 3, Passage({})),
    ):
        torch.randn(2, 3, 4, 4).softmax(-1)


def test_infinite_scores_are_not_hidden() -> None:
    posterior = ba.Softmax().bind(num_heads=1, head_dim=8)
    query = torch.ones(1, 1, 2, 8)
    query[0, 0, 0] = torch.inf
    with Redirection(nn.Identity(), posterior, 1, Passage({})):
        weights = (query @ torch.ones(1, 1, 8, 3)).softmax(-1)
    assert weights[0, 0, 0].isnan().all()
    torch.testing.assert_close(weights[0, 0, 1], torch.full((3,), 1 / 3))


def test_windows_count_to_their_image_and_shifted_ones_not_to_each_other() -> None:
    config = transformers.Swinv2Config(
        image_size=16, patch_size=2, embed_dim=8, depths=[2], num_heads=[2], window_size=4, num_labels=3
    )
    model = ba.convert(transformers.Swinv2ForImageClassification(config).eval(), ba.Weibull(k=5.0))
    with ba.record() as latents, torch.no_grad():
        model(torch.randn(3, 3, 16, 16))
    plain, shifted = latents.local_terms
    assert plain.elements.tolist() == [2 * 4 * 16 * 16.0] * 3  # heads, windows, positions of a window
    assert plain.tokens.tolist() == [64.0] * 3
    # of four windows, one is whole, two are cut into halves, one into quarters
    assert shifted.elements.tolist() == [2 * (256 + 2 * 128 + 64.0)] * 3


def test_padding_that_attends_to_itself_does_not_count() -> None:
    config = transformers.XLNetConfig(vocab_size=31, d_model=16, n_layer=1, n_head=2, d_inner=16)
    model = ba.convert(transformers.XLNetModel(config).eval(), ba.Weibull(k=5.0))
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])
    with ba.record() as latents, torch.no_grad():
        model(torch.randint(3, 31, (2, 4)), attention_mask=mask)
    assert latents.local_terms[0].elements.tolist() == [2 * 16.0, 2 * 4.0]


def test_padding_of_a_decoder_that_is_no_model_of_its_own_is_not_that_of_the_source() -> None:
    config = transformers.FSMTConfig(
        langs=["en", "de"],
        src_vocab_size=31,
        tgt_vocab_size=31,
        d_model=16,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=16,
        decoder_ffn_dim=16,
    )
    model = ba.convert(transformers.FSMTModel(config).eval(), ba.Weibull(k=5.0))
    source, target = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]]), torch.tensor([[1, 1, 0, 0], [1, 1, 1, 1]])
    ids = torch.randint(3, 31, (2, 4))
    with ba.record() as latents, torch.no_grad():
        model(ids, source, ids, target, use_cache=False)
    _, decoder, cross = (term.elements.tolist() for term in latents.local_terms)
    assert decoder == [2 * 3.0, 2 * 10.0]
    assert cross == [2 * 8.0, 2 * 8.0]


@pytest.mark.parametrize(
    ("settings", "whole"),
    [({}, 4.0), ({"truncate_seq": False}, 5.0), ({"separate_cls": False}, 4.0), ({"pool_q_only": False}, 4.0)],
)
def test_queries_that_are_pooled_from_padding_do_not_count(settings: dict[str, bool], whole: float) -> None:
    config = transformers.FunnelConfig(
        vocab_size=31, block_sizes=[1, 1], num_decoder_layers=1, d_model=16, n_head=2, d_head=8, d_inner=16, **settings
    )
    model = ba.convert(transformers.FunnelModel(config).eval(), ba.Weibull(k=5.0))
    ids, mask = torch.randint(3, 31, (2, 8)), torch.tensor([[1] * 8, [1] * 4 + [0] * 4])
    with torch.no_grad(), ba.record() as latents:
        model(ids, attention_mask=mask)
    assert [term.rows.tolist() for term in latents.local_terms] == [[16.0, 8.0], [2 * whole, 4.0], [16.0, 8.0]]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["xlnet", "led"])
def test_compiled_with_graph_breaks_it_is_the_same(name: str) -> None:
    """In a process of its own: the shape checks of the test session stand in the compiler's way."""
    script = Path(support_matrix.__file__)
    done = subprocess.run([sys.executable, script, name], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("right"), done.stdout + done.stderr[-3000:]


@pytest.mark.parametrize("how", ["sdpa", "eager"])
def test_padding_is_counted_out_whichever_way_a_layer_takes(how: str) -> None:
    config = transformers.FalconConfig(
        vocab_size=31, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, attn_implementation=how
    )
    model = ba.convert(transformers.FalconModel(config).eval(), ba.Weibull(k=5.0))
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])
    with ba.record() as latents, torch.no_grad():
        model(torch.randint(3, 31, (2, 4)), attention_mask=mask)
    assert latents.local_terms[0].elements.tolist() == [2 * 10.0, 2 * 3.0]


def test_a_mask_of_minus_ten_thousand_blocks_in_the_interface_too() -> None:
    config = transformers.MarkupLMConfig(**TEXT, max_depth=3, xpath_unit_hidden_size=4)
    model = ba.convert(transformers.MarkupLMModel(config).eval(), ba.Weibull(k=5.0))
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])
    with ba.record() as latents, torch.no_grad():
        model(torch.randint(3, 31, (2, 4)), attention_mask=mask)
    assert latents.local_terms[0].elements.tolist() == [2 * 16.0, 2 * 4.0]


def test_gradient_checkpointing_gives_the_same_gradients() -> None:
    config = transformers.RoFormerConfig(**{**TEXT, "num_hidden_layers": 2})
    gradients = []
    for checkpointing in (False, True):
        torch.manual_seed(5)
        model: Any = ba.convert(
            transformers.RoFormerModel(config), ba.Weibull(k=2.0, prior=ba.ContextualGamma())
        ).train()
        if checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": False})
        torch.manual_seed(6)
        mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])
        with ba.record() as latents:
            states = model(torch.arange(3, 11).view(2, 4), attention_mask=mask).last_hidden_state
        ba.elbo(states.square().mean((1, 2)), latents, kl_reduction="sum", compare_gradients=False).backward()
        gradients.append([weight.grad for weight in model.parameters() if weight.grad is not None])
    assert len(gradients[0]) > 20
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other)


def test_what_cannot_be_right_is_refused_by_name() -> None:
    long_t5 = transformers.LongT5EncoderModel(
        transformers.LongT5Config(vocab_size=31, d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2)
    )
    with pytest.raises(ValueError, match="LongT5LocalAttention is not one softmax over the keys of each query"):
        ba.convert(long_t5, ba.Weibull())
    assert [layer.state for layer in ba.summary(long_t5).layers] == ["cannot be converted"]
    big_bird = transformers.BigBirdModel(transformers.BigBirdConfig(**TEXT))
    with pytest.raises(ValueError, match="attention_type='original_full'"):
        ba.convert(big_bird, ba.Weibull())
    full = transformers.BigBirdModel(transformers.BigBirdConfig(**TEXT, attention_type="original_full"))
    assert len(ba.summary(ba.convert(full, ba.Weibull())).of("converted")) == 1


@pytest.mark.parametrize("name", ["Mamba", "FNet"])
def test_without_attention_the_alternatives_are_named(name: str) -> None:
    sizes = {"vocab_size": 31, "hidden_size": 16, "num_hidden_layers": 1}
    model = getattr(transformers, f"{name}Model")(getattr(transformers, f"{name}Config")(**sizes))
    with pytest.raises(ValueError, match=r"ba\.weight_space\.laplace.*ba\.weight_space\.ensemble.*ba\.calibrate"):
        ba.convert(model, ba.Weibull())


def test_sizes_are_the_layers_before_the_configs() -> None:
    layer: Any = nn.Module()
    layer.num_heads, layer.config = 3, transformers.GPT2Config(n_head=4)
    layer.split_size = 24
    assert sizes(layer) == (3, 8)
    layer.head_dim = 5
    assert sizes(layer) == (3, 5)
    assert sizes(nn.Linear(2, 2)) is None
