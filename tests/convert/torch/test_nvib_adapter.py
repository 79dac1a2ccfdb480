"""NVIB in torch's own transformers."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

import bayesattn as ba
from bayesattn.nvib import NVIB, DenoisingMultiheadAttention

PADDING = torch.tensor([[False] * 6, [False] * 4 + [True] * 2, [False] * 5 + [True]])
CAUSAL = nn.Transformer.generate_square_subsequent_mask(5)


def transformer(batch_first: bool = True) -> nn.Transformer:
    return nn.Transformer(16, 4, 2, 2, 32, dropout=0.0, batch_first=batch_first)


def run(model: nn.Transformer) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    source, target = torch.randn(3, 6, 16, generator=generator), torch.randn(3, 5, 16, generator=generator)
    if not model.batch_first:
        source, target = source.transpose(0, 1), target.transpose(0, 1)
    output = model(
        source, target, tgt_mask=CAUSAL.isinf(), src_key_padding_mask=PADDING, memory_key_padding_mask=PADDING
    )
    return output if model.batch_first else output.transpose(0, 1)


WHERE = {
    "cross": ["decoder.layers.0.multihead_attn", "decoder.layers.1.multihead_attn"],
    "self": [f"{part}.layers.{index}.self_attn" for part in ("encoder", "decoder") for index in (0, 1)],
}


@pytest.mark.parametrize("where", ["cross", "self", "all"])
def test_it_goes_where_it_is_told_trains_and_leaves(where: str) -> None:
    model = transformer().eval()
    original, keys = run(model), set(model.state_dict())
    ba.convert(model, NVIB(delta=0.3, alpha="quadratic"), where=where)
    converted = [name for name, module in model.named_modules() if isinstance(module, DenoisingMultiheadAttention)]
    assert set(converted) == set(WHERE.get(where, WHERE["cross"] + WHERE["self"]))
    assert keys < set(model.state_dict())
    model.train()
    with ba.record() as latents:
        output = run(model)
    assert set(latents.by_layer(model)) == {
        f"{name}.nvib.{kl}" for name in converted for kl in ("dirichlet", "gaussian")
    }
    ba.elbo(output.square().mean((1, 2)), latents).backward()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in model.parameters())
    assert not torch.allclose(run(model), run(model), atol=1e-3)
    assert torch.equal(run(ba.revert(model.eval())), original)
    assert set(model.state_dict()) == keys


def test_evaluation_without_gradients_does_not_go_past_it() -> None:
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True), 2).eval()
    x = torch.randn(3, 6, 16)
    with torch.no_grad():
        before = encoder(x)
        ba.convert(encoder, NVIB())
        assert not torch.allclose(encoder(x), before, atol=1e-3)
        with ba.sampling():
            one = encoder(x, src_key_padding_mask=PADDING)
            assert not torch.allclose(one, encoder(x, src_key_padding_mask=PADDING), atol=1e-3)
        assert encoder.eval()(x, src_key_padding_mask=PADDING).isfinite().all()


@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")  # torch's own
def test_batch_first_or_not() -> None:
    one, two = ba.convert(transformer(), NVIB()).eval(), ba.convert(transformer(batch_first=False), NVIB()).eval()
    two.load_state_dict(one.state_dict())
    assert torch.allclose(run(one), run(two), atol=1e-5)


def test_one_latent_for_a_whole_decoder() -> None:
    """The published autoencoder: one NVIB layer between encoder and decoder, whose padding goes with it."""
    nvib, model = NVIB(16, num_heads=4, alpha="relu").eval(), transformer().eval()
    for layer in model.decoder.layers:
        layer.multihead_attn = DenoisingMultiheadAttention(16, 4, batch_first=True).eval()
    memory, target = torch.randn(3, 6, 16), torch.randn(3, 5, 16)
    output = model.decoder(target, nvib(memory, PADDING))
    alone = model.decoder(target[1:2], nvib(memory[1:2, :4]))
    assert torch.allclose(output[1], alone[0], atol=1e-5)
    assert model.decoder(target, nvib.sample_prior(torch.tensor([6, 2, 3]))).isfinite().all()


def test_saved_and_loaded_it_predicts_the_same_and_a_copy_is_its_own() -> None:
    template = NVIB(alpha="relu", threshold=0.1)
    model = ba.convert(transformer(), template, where="cross").eval()
    again = ba.convert(transformer(), ba.from_config(template.config()), where="cross").eval()
    again.load_state_dict(model.state_dict())
    expected = run(model)
    assert torch.equal(run(again), expected)
    ba.revert(copy.deepcopy(model))
    assert torch.equal(run(model), expected)


def test_beside_a_posterior_of_the_weights() -> None:
    model = ba.convert(transformer().eval(), NVIB(), where="cross")
    ba.convert(model, ba.Weibull(2.0))
    with ba.record() as latents:
        run(model)
    assert len(latents) == 4 + 2 * 2
    ba.revert(model)
    assert all(type(module) is not DenoisingMultiheadAttention for module in model.modules())
    assert torch.equal(run(model), run(model))


def test_prediction_by_sampling() -> None:
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), 1)
    prediction = ba.predict(ba.convert(encoder, NVIB()), torch.randn(3, 6, 16), samples=8)
    assert prediction.mean.shape == (3, 6, 16)
    assert (prediction.mutual_information > 0).all()


@pytest.mark.usefixtures("unchecked")
def test_messages() -> None:
    with pytest.raises(TypeError, match=r"or a ba.nvib.NVIB; got 'nvib'"):
        ba.convert(transformer(), "nvib")  # pyright: ignore
    with pytest.raises(ValueError, match="where='cross' chooses none"):
        ba.convert(nn.TransformerEncoderLayer(16, 4), NVIB(), where="cross")
    with pytest.raises(ValueError, match="NVIB has one latent for all"):
        ba.convert(nn.MultiheadAttention(16, 4, kdim=8), NVIB())
    with pytest.raises(ValueError, match="add keys that belong to no token"):
        ba.convert(nn.MultiheadAttention(16, 4, add_zero_attn=True), NVIB())
    with pytest.raises(ValueError, match="converted already"):
        ba.convert(ba.convert(transformer(), NVIB()), NVIB())
