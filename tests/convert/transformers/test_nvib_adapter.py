"""NVIB in Hugging Face models: the identity, regularisation by degrees, masks, saving."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import bayesattn as ba
from bayesattn.nvib import NVIB

pytest.importorskip("transformers", reason="needs the hf extra: pip install 'bayesattn[hf]'")

import transformers

from helpers.architectures import BY_NAME, outputs

ENCODERS = ("BERT", "BART")


def model_and_inputs(name: str) -> tuple[Any, dict[str, Tensor], Any]:
    case = BY_NAME[name]
    model = case.build()
    for parameter in model.parameters():
        if parameter.dim() == 1:  # no model that was trained has biases of 0
            torch.nn.init.normal_(parameter, parameter.mean().item(), 0.1)
    inputs = case.inputs()
    take = outputs(case.kind)
    mask = inputs.get("decoder_attention_mask" if case.kind == "seq2seq" else "attention_mask")

    def run() -> Tensor:
        with torch.no_grad():
            output = take(model(**inputs, **({"use_cache": False} if case.kind == "seq2seq" else {})))
        return output if mask is None else output[mask.bool()]

    return model, inputs, run


def measured(model: Any, inputs: dict[str, Tensor]) -> None:
    ba.nvib.identity(model, [inputs], forward=lambda batch: _forward(model, batch))


def _forward(model: Any, batch: dict[str, Tensor]) -> Any:
    return model(**batch, **({"use_cache": False} if model.config.is_encoder_decoder else {}))


@pytest.mark.parametrize("name", ENCODERS)
def test_the_identity_is_the_original_with_padding_and_causality_and_leaves_it_by_degrees(name: str) -> None:
    model, inputs, run = model_and_inputs(name)
    before = run()
    keys = set(model.state_dict())
    ba.convert(model, NVIB(alpha="quadratic"))
    assert keys < set(model.state_dict())
    measured(model, inputs)
    distances = []
    for tau_alpha in (12.0, 4.0, 2.0, 0.0, -4.0):
        ba.nvib.identity(model, tau_alpha=tau_alpha)
        distances.append((run() - before).abs().mean().item())
    assert distances[0] < 1e-3
    assert distances == sorted(distances)
    assert distances[-1] > 100 * distances[0]
    ba.nvib.identity(model, tau_alpha=12.0, tau_sigma=0.5)
    assert (run() - before).abs().mean() > 10 * distances[0]
    ba.revert(model)
    assert torch.allclose(run(), before, atol=1e-6)
    assert set(model.state_dict()) == keys
    assert "bayesattn" not in model.config.__dict__


def test_cross_and_self_attention_by_name() -> None:
    model, inputs, run = model_and_inputs("BART")
    before = run()
    ba.convert(model, NVIB(alpha="quadratic"), where="cross")
    converted = [name for name, module in model.named_modules() if hasattr(module, "nvib")]
    assert converted
    assert all(name.endswith("encoder_attn") for name in converted)
    measured(model, inputs)
    ba.nvib.identity(model, tau_alpha=14.0)
    assert (run() - before).abs().max() < 1e-3
    ba.convert(model, ba.Weibull(5.0), where="self")
    with ba.record() as latents:
        _forward(model, inputs)
    names = latents.by_layer(model)
    assert {name.rpartition(".")[2] for name in names} == {"dirichlet", "gaussian", "posterior"}


def test_training_records_both_kls_and_padding_does_not_count() -> None:
    model, inputs, _ = model_and_inputs("BERT")
    ba.convert(model, NVIB(alpha="exp", delta=0.2), where=0)
    model.train()
    with ba.record() as latents:
        output = model(**inputs).logits
    assert {name.rpartition(".")[2] for name in latents.by_layer(model)} == {"dirichlet", "gaussian"}
    ba.elbo(output.square().mean((1, 2)), latents).backward()
    nvib = next(module for module in model.modules() if isinstance(module, NVIB))
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in nvib.parameters())
    model.eval()
    with ba.record() as padded, torch.no_grad():
        model(**inputs)
    lengths = inputs["attention_mask"].sum(1)
    shortest = int(lengths.argmin())
    alone = {name: tensor[shortest : shortest + 1] for name, tensor in inputs.items()}
    kept = inputs["attention_mask"][shortest].bool()
    with ba.record() as single, torch.no_grad():
        model(**{name: tensor[:, kept] for name, tensor in alone.items()})
    assert padded.local_kl[shortest].item() == pytest.approx(single.local_kl[0].item(), rel=1e-4)


def test_the_prior_has_a_column_of_its_own_in_the_weights() -> None:
    model, inputs, _ = model_and_inputs("BERT")
    ba.convert(model, NVIB(alpha="quadratic"))
    measured(model, inputs)
    shares = []
    for tau_alpha in (10.0, 2.0, 0.0, -10.0):
        ba.nvib.identity(model, tau_alpha=tau_alpha)
        with torch.no_grad():
            weights = model(**inputs, output_attentions=True).attentions[0]
        assert weights.shape[-1] == inputs["input_ids"].shape[1] + 1
        assert torch.allclose(weights.sum(-1), torch.tensor(1.0), atol=1e-5)
        shares.append(weights[..., 0].mean().item())
    assert shares == sorted(shares)
    assert shares[0] < 1e-3
    assert shares[-1] > 0.9


def test_saved_and_loaded_it_predicts_the_same(tmp_path: Path) -> None:
    from bayesattn.huggingface import from_pretrained

    model, inputs, run = model_and_inputs("BERT")
    ba.convert(model, NVIB(alpha="quadratic"), where="last")
    measured(model, inputs)
    ba.nvib.identity(model, tau_alpha=1.0, tau_sigma=0.3)
    expected = run()
    model.save_pretrained(tmp_path)
    loaded = from_pretrained(type(model), tmp_path).eval()
    with torch.no_grad():
        again = loaded(**inputs).logits[inputs["attention_mask"].bool()]
    assert torch.allclose(again, expected, atol=1e-6)


def test_what_cannot_be_converted_is_refused() -> None:
    with pytest.raises(ValueError, match="latent has one width"):
        ba.convert(BY_NAME["Llama"].build(), NVIB())
    with pytest.raises(ValueError, match="no two linear maps to keys and values"):
        ba.convert(BY_NAME["T5"].build(), NVIB())
    model, inputs, _ = model_and_inputs("BART")
    ba.convert(model, NVIB())
    with pytest.raises(ValueError, match="use_cache=False"):
        model.generate(input_ids=inputs["input_ids"], max_new_tokens=3)


@pytest.mark.slow
def test_minilm_keeps_its_embeddings() -> None:
    from bayesattn.experiments.data.pretrained import minilm

    try:
        folder = minilm()
    except FileNotFoundError as error:
        pytest.skip(str(error))
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.BertModel.from_pretrained(folder).eval()
    sentences = ["A short one.", "Another sentence, longer than the first, and padded.", "Rivers run to the sea."]
    inputs = tokenizer(sentences, padding=True, return_tensors="pt")
    real = inputs["attention_mask"].bool()
    with torch.no_grad():
        before = model(**inputs).last_hidden_state[real]
        ba.nvib.identity(ba.convert(model, NVIB(alpha="quadratic")), [inputs])
        assert (model(**inputs).last_hidden_state[real] - before).abs().max() < 1e-3
