"""Conversion of models made of torch's own layers."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import bayesattn as ba


def encoder(norm_first: bool = False, layers: int = 2, dropout: float = 0.0) -> nn.TransformerEncoder:
    layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=dropout, batch_first=True, norm_first=norm_first)
    return nn.TransformerEncoder(layer, layers, enable_nested_tensor=not norm_first)


PADDING = torch.tensor([[False] * 6, [False] * 4 + [True] * 2, [False] * 5 + [True]])
CAUSAL = nn.Transformer.generate_square_subsequent_mask(6)
CASES = {
    "plain": {},
    "padding": {"src_key_padding_mask": PADDING},
    "causal": {"mask": CAUSAL, "is_causal": True},
    "both": {"mask": CAUSAL.isinf(), "src_key_padding_mask": PADDING},
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("mode", ["train", "eval", "eval without gradients"])
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")  # torch's own, of the original's fast path
def test_converted_with_softmax_it_is_the_original_and_reverted_bit_for_bit(
    case: str, norm_first: bool, mode: str
) -> None:
    model = encoder(norm_first).train(mode == "train")
    x = torch.randn(3, 6, 16)
    keys = list(model.state_dict())
    with torch.set_grad_enabled(mode != "eval without gradients"):
        # where a padded position's own output is undefined (torch's fast path writes zeros), only the others count
        real = ~PADDING if "padding" in case or case == "both" else torch.ones(3, 6, dtype=torch.bool)
        original = model(x, **CASES[case])
        converted = ba.convert(model, ba.Softmax())(x, **CASES[case])
        assert converted.isfinite().all()
        assert torch.allclose(original[real], converted[real], atol=1e-6)
        assert list(model.state_dict()) == keys
        reverted = ba.revert(model)(x, **CASES[case])
    assert torch.equal(original, reverted)
    assert all(type(layer.self_attn) is nn.MultiheadAttention for layer in model.layers)


def test_dropout_in_training_is_the_originals_given_the_seed() -> None:
    model, x = encoder(dropout=0.3), torch.randn(3, 6, 16)
    outputs = []
    for change in (lambda: None, lambda: ba.convert(model, ba.Softmax())):
        change()
        torch.manual_seed(7)
        outputs.append(model(x))
    assert torch.allclose(outputs[0], outputs[1], atol=1e-6)


@pytest.mark.parametrize("padded", [True, False])
def test_torchs_eval_fast_path_does_not_go_past_the_posterior(padded: bool) -> None:
    model, x = ba.convert(encoder().eval(), ba.Weibull(1.0)), torch.randn(3, 6, 16)
    mask = PADDING if padded else None
    with torch.no_grad(), ba.sampling():
        assert not torch.allclose(model(x, src_key_padding_mask=mask), model(x, src_key_padding_mask=mask), atol=1e-3)
    with torch.no_grad(), ba.record() as latents:
        model(x, src_key_padding_mask=mask)
    assert len(latents) == 2


def test_a_transformer_with_a_decoder() -> None:
    model = nn.Transformer(16, 4, 2, 2, 32, dropout=0.0, batch_first=True)
    source, target = torch.randn(3, 6, 16), torch.randn(3, 6, 16)
    masks = {
        "tgt_mask": CAUSAL,
        "src_key_padding_mask": torch.zeros(3, 6).masked_fill(PADDING, float("-inf")),
        "memory_key_padding_mask": torch.zeros(3, 6).masked_fill(PADDING, float("-inf")),
        "tgt_key_padding_mask": torch.zeros(3, 6).masked_fill(PADDING, float("-inf")),
    }
    original = model(source, target, **masks)
    converted = ba.convert(model, ba.Softmax())(source, target, **masks)
    assert torch.allclose(original[~PADDING], converted[~PADDING], atol=1e-6)
    ba.revert(model)
    assert torch.equal(original[~PADDING], model(source, target, **masks)[~PADDING])
    assert all(not layer._forward_pre_hooks and not layer._forward_hooks for layer in model.decoder.layers)  # pyright: ignore


def test_the_kl_of_an_encoder_and_decoder_does_not_depend_on_padding() -> None:
    model = ba.convert(
        nn.Transformer(16, 4, 1, 2, 32, dropout=0.0, batch_first=True), ba.Weibull(1e6, ba.ContextualGamma(0.5, 3))
    )
    source, target = torch.randn(1, 6, 16), torch.randn(1, 6, 16)
    padding = PADDING[1:2]
    with ba.record() as padded:
        model(
            source,
            target,
            tgt_mask=CAUSAL.isinf(),
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
            tgt_key_padding_mask=padding,
        )
    with ba.record() as short:
        model(source[:, :4], target[:, :4], tgt_mask=CAUSAL[:4, :4].isinf())
    assert len(padded) == len(short) == 5
    assert torch.allclose(padded.local_kl, short.local_kl, rtol=1e-4)


def test_each_layer_has_its_own_prior_and_a_shared_layer_one() -> None:
    model = ba.convert(encoder(), ba.Weibull(2.0, ba.ContextualGamma(hidden=3)))
    priors = [layer.self_attn.posterior.prior.network for layer in model.layers]  # pyright: ignore
    assert priors[0] is not priors[1]
    shared = nn.Sequential()
    attention = nn.MultiheadAttention(16, 4)
    shared.add_module("a", attention)
    shared.add_module("b", attention)
    ba.convert(shared, ba.Weibull(2.0))
    assert shared.a is shared.b


def test_parameters_hooks_and_modules_stay_the_same_objects() -> None:
    model = encoder()
    before = {name: id(parameter) for name, parameter in model.named_parameters()}
    modules = {name: id(module) for name, module in model.named_modules()}
    calls = []
    model.layers[0].self_attn.register_forward_hook(lambda *_: calls.append(1))  # pyright: ignore
    ba.convert(model, ba.Weibull(2.0))
    model(torch.randn(2, 6, 16))
    assert calls == [1]
    after = dict(model.named_parameters())
    assert all(id(after[name]) == identity for name, identity in before.items())
    assert all(id(dict(model.named_modules())[name]) == identity for name, identity in modules.items())


def test_training_after_conversion_trains_the_original() -> None:
    model, x = encoder(), torch.randn(3, 6, 16)
    optimiser = torch.optim.SGD(model.parameters(), 0.1)
    ba.convert(model, ba.Weibull(2.0))
    with ba.record() as latents:
        output = model(x)
    ba.elbo(output.square().mean((1, 2)), latents, kl_reduction="sum", compare_gradients=False).backward()
    old = model.layers[0].self_attn.in_proj_weight.clone()  # pyright: ignore
    optimiser.step()
    ba.revert(model)
    assert not torch.equal(old, model.layers[0].self_attn.in_proj_weight)  # pyright: ignore


def test_saved_and_loaded_it_predicts_the_same() -> None:
    posterior = ba.Weibull(2.0, ba.ContextualGamma(0.1, 3))
    model, x = ba.convert(encoder(), posterior).eval(), torch.randn(3, 6, 16)
    again = ba.convert(encoder(), ba.from_config(posterior.config())).eval()
    again.load_state_dict(model.state_dict())
    with ba.record() as one, torch.no_grad():
        first = model(x)
    with ba.record() as two, torch.no_grad():
        second = again(x)
    assert torch.equal(first, second)
    assert torch.equal(one.local_kl, two.local_kl)


def test_a_copy_of_a_converted_model_is_its_own() -> None:
    model, x = ba.convert(encoder(), ba.Weibull(2.0)), torch.randn(3, 6, 16)
    twin = copy.deepcopy(model)
    ba.revert(twin)
    decoder = ba.convert(nn.TransformerDecoder(nn.TransformerDecoderLayer(16, 4, 32), 1), ba.Weibull(2.0))
    assert not ba.revert(copy.deepcopy(decoder)).layers[0]._forward_pre_hooks
    assert decoder.layers[0]._forward_pre_hooks
    with ba.record() as latents:
        model(x)
    assert len(latents) == 2


def test_a_converted_model_follows_its_device_dtype_and_mode() -> None:
    model = ba.convert(encoder().double().eval(), ba.Weibull(2.0, ba.ContextualGamma(hidden=3)))
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float64}
    assert not any(module.training for module in model.modules())


class Own(nn.MultiheadAttention):
    """A subclass with a forward of its own."""


@pytest.mark.usefixtures("unchecked")
def test_messages() -> None:
    with pytest.raises(ValueError, match=r"Linear has no attention layer that can be converted. Known are .*torch.nn"):
        ba.convert(nn.Linear(2, 2), ba.Softmax())
    with pytest.raises(TypeError, match="posterior must be a Posterior such as"):
        ba.convert(encoder(), "weibull")  # pyright: ignore
    with pytest.raises(TypeError, match=r"model must be a torch.nn.Module, got str"):
        ba.convert("bert", ba.Softmax())  # pyright: ignore
    with pytest.raises(ValueError, match=r"converted already: call ba.revert\(model\) first"):
        ba.convert(ba.convert(encoder(), ba.Softmax()), ba.Softmax())
    with pytest.raises(ValueError, match="nothing to revert"):
        ba.revert(encoder())
    with pytest.raises(ValueError, match=r"'own'.*Own is a subclass of torch.nn.MultiheadAttention"):
        ba.convert(nn.ModuleDict({"own": Own(8, 2)}), ba.Softmax())
    mixed = nn.ModuleDict({"own": Own(8, 2), "plain": nn.MultiheadAttention(8, 2)})
    with pytest.raises(ValueError, match="Choose the others with where="):
        ba.convert(mixed, ba.Softmax())
    assert type(mixed["plain"]) is nn.MultiheadAttention, "a refused conversion must change nothing"
    ba.convert(mixed, ba.Softmax(), where="plain")
    assert type(mixed["plain"]) is ba.nn.MultiheadAttention
