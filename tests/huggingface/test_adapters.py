"""PEFT: posteriors in an adapter, wrapped before or after the conversion, saved, loaded, merged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import bayesattn as ba

pytest.importorskip("transformers", reason="needs the hf extra: pip install 'bayesattn[hf]'")
pytest.importorskip("peft", reason="needs peft: pip install peft")

import peft
import transformers

from bayesattn.huggingface import from_pretrained, get_peft_model, load_adapter

POSTERIOR = ba.Weibull(k=5.0, prior=ba.ContextualGamma(beta=1.0, hidden=3))
INPUTS = {
    "input_ids": torch.arange(3, 15).view(2, 6),
    "attention_mask": torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0]]),
}


def base() -> Any:
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=31, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16
    )
    return transformers.BertForSequenceClassification(config).eval()


def lora(**more: Any) -> Any:
    return peft.LoraConfig(r=2, target_modules=["query", "value"], task_type="SEQ_CLS", **more)


def made(order: str) -> Any:
    if order == "convert, then wrap":
        return get_peft_model(ba.convert(base(), POSTERIOR), lora())
    if order == "wrap, then convert":
        return ba.convert(peft.get_peft_model(base(), lora()), POSTERIOR)
    return peft.get_peft_model(ba.convert(base(), POSTERIOR), lora(modules_to_save=["posterior"]))


ORDERS = ["convert, then wrap", "wrap, then convert", "modules_to_save"]


def sampled(model: Any) -> tuple[Tensor, Tensor]:
    torch.manual_seed(4)
    with ba.sampling(), ba.record() as latents, torch.no_grad():
        logits = model(**INPUTS).logits
    return logits, latents.local_kl


def trained(model: Any) -> Any:
    """Two steps, that move what is trainable by an amount that is seen."""
    model.train()
    torch.manual_seed(1)
    optimizer = torch.optim.SGD([weight for weight in model.parameters() if weight.requires_grad], lr=0.1)
    for _ in range(2):
        with ba.record() as latents:
            logits = model(**INPUTS).logits
        loss = torch.nn.functional.cross_entropy(logits, torch.tensor([0, 1]), reduction="none")
        optimizer.zero_grad()
        ba.elbo(loss, latents, kl_weight=0.1, kl_reduction="sum", compare_gradients=False).backward()
        optimizer.step()
    return model.eval()


@pytest.mark.parametrize("order", ORDERS)
def test_the_adapter_and_the_posteriors_are_trained_and_nothing_else(order: str) -> None:
    model = made(order)
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    trained(model)
    moved = {name for name, weight in model.named_parameters() if not torch.equal(weight, before[name])}
    kinds = ("lora_", "modules_to_save")
    assert all(any(kind in name for kind in kinds) for name in moved)
    assert sum("prior.network.inner.weight" in name for name in moved) == 2
    assert sum("lora_B" in name for name in moved) == 4
    assert len(ba.summary(model).of("converted")) == len(ba.summary(model).layers) == 2


@pytest.mark.parametrize("order", ORDERS)
def test_saved_with_the_adapter_and_read_back(order: str, tmp_path: Path) -> None:
    model = trained(made(order))
    model.save_pretrained(tmp_path)
    assert (tmp_path / "adapter_model.safetensors").exists()
    assert not (tmp_path / "model.safetensors").exists()
    if order == "modules_to_save":  # PEFT's own functions alone
        with pytest.raises(ValueError, match=r"no bayesattn\.json.*get_peft_model"):
            load_adapter(base(), tmp_path)
        loaded = peft.PeftModel.from_pretrained(ba.convert(base(), POSTERIOR), tmp_path).eval()
    else:
        loaded = load_adapter(base(), tmp_path).eval()
    for actual, expected in zip(sampled(loaded), sampled(model), strict=True):
        assert torch.equal(actual, expected)
    untrained = load_adapter(base(), tmp_path).eval() if order != "modules_to_save" else loaded
    assert not any(weight.requires_grad for name, weight in untrained.named_parameters() if "posterior" in name)


def test_merged_it_is_a_converted_model_that_is_saved_whole(tmp_path: Path) -> None:
    model = trained(made("wrap, then convert"))
    expected = sampled(model)
    merged = model.merge_and_unload()
    for actual, wanted in zip(sampled(merged), expected, strict=True):
        torch.testing.assert_close(actual, wanted)
    merged.save_pretrained(tmp_path)
    loaded = from_pretrained(transformers.BertForSequenceClassification, tmp_path)
    for actual, wanted in zip(sampled(loaded), sampled(merged), strict=True):
        assert torch.equal(actual, wanted)
    ba.revert(merged)
    assert not any("posterior" in name for name, _ in merged.named_parameters())


def test_without_the_adapter_it_is_the_base_model() -> None:
    model = trained(made("convert, then wrap"))
    plain = ba.convert(base(), POSTERIOR)
    with model.disable_adapter():
        assert torch.equal(model(**INPUTS).logits, plain(**INPUTS).logits)


def test_an_adapter_without_its_posteriors_is_refused(tmp_path: Path) -> None:
    model = made("convert, then wrap")
    model.save_pretrained(tmp_path)
    import safetensors.torch

    file = tmp_path / "adapter_model.safetensors"
    weights = {name: weight for name, weight in safetensors.torch.load_file(file).items() if "posterior" not in name}
    safetensors.torch.save_file(weights, file)
    with pytest.raises(ValueError, match=r"lacks parameters of its posteriors, the first is.*get_peft_model"):
        load_adapter(base(), tmp_path)


def test_what_is_not_converted_or_cannot_be_saved_is_refused() -> None:
    with pytest.raises(ValueError, match=r"is not converted: call ba\.convert first"):
        get_peft_model(base(), lora())
    prompts = peft.PromptTuningConfig(task_type="SEQ_CLS", num_virtual_tokens=2)
    if not hasattr(prompts, "modules_to_save"):
        with pytest.raises(ValueError, match="PromptTuningConfig has no modules_to_save"):
            get_peft_model(ba.convert(base(), POSTERIOR), prompts)


def test_posteriors_that_peft_has_frozen_are_told_of_once() -> None:
    model = peft.get_peft_model(ba.convert(base(), POSTERIOR), lora()).train()
    assert not any(weight.requires_grad for name, weight in model.named_parameters() if "posterior" in name)
    with pytest.warns(
        UserWarning, match=r"PEFT has frozen the posteriors of BertFor.*get_peft_model, or name modules_to_save"
    ):
        model(**INPUTS)
    model(**INPUTS)
    peft.get_peft_model(ba.convert(base(), ba.Weibull(k=5.0)), lora()).train()(**INPUTS)  # nothing to train in it
