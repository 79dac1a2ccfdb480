"""A converted model, saved and loaded again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayesattn as ba

pytest.importorskip("transformers", reason="needs the hf extra: pip install 'bayesattn[hf]'")

import transformers

from bayesattn.huggingface import from_pretrained
from helpers.architectures import BY_NAME, Case, outputs

POSTERIORS = {
    "weibull": ba.Weibull(k=7.0, prior=ba.ContextualGamma(beta=0.5, hidden=3)),
    "gaussian": ba.Gaussian(data_dependent=True),
    "dirichlet": ba.Dirichlet(),
}


def sampled(case: Case, model: nn.Module) -> tuple[Tensor, Tensor]:
    torch.manual_seed(4)
    with ba.sampling(), ba.record() as latents, torch.no_grad():
        output = outputs(case.kind)(model(**case.inputs()))
    return output, latents.local_kl


@pytest.mark.parametrize(
    ("name", "posterior"),
    [
        ("BERT", "weibull"),
        ("ALBERT", "gaussian"),
        ("Llama", "dirichlet"),
        ("T5", "weibull"),
        ("ViT", "gaussian"),
        ("CLIP", "weibull"),
    ],
)
def test_round_trip(tmp_path: Path, name: str, posterior: str) -> None:
    case = BY_NAME[name]
    plain_output = outputs(case.kind)(case.build()(**case.inputs()))
    where = lambda name, layer: "vision" not in name  # noqa: E731
    model: Any = ba.convert(case.build(), POSTERIORS[posterior], where=where)
    model.save_pretrained(tmp_path)
    assert not list(tmp_path.glob("*.bin"))
    loaded = from_pretrained(type(model), tmp_path)
    assert type(loaded) is type(model)
    assert loaded.config.bayesattn == model.config.bayesattn
    for expected, actual in zip(sampled(case, model), sampled(case, loaded), strict=True):
        assert torch.equal(expected, actual)
    plain = type(model).from_pretrained(tmp_path)
    assert plain.config._attn_implementation != "bayesattn"
    with ba.sampling(), ba.record() as latents:
        again = outputs(case.kind)(plain(**case.inputs()))
    assert len(latents) == 0
    torch.testing.assert_close(again, plain_output, atol=1e-4, rtol=0)


def test_auto_classes_and_a_body_without_its_head(tmp_path: Path) -> None:
    case = BY_NAME["BERT"]
    model: Any = ba.convert(case.build(), POSTERIORS["weibull"], where="last")
    model.save_pretrained(tmp_path)
    auto = from_pretrained(transformers.AutoModelForMaskedLM, tmp_path)
    assert torch.equal(sampled(case, auto)[1], sampled(case, model)[1])
    body = from_pretrained(transformers.BertModel, tmp_path)
    network = "encoder.layer.1.attention.self.posterior.prior.network.inner.weight"
    assert torch.equal(body.get_parameter(network), model.bert.get_parameter(network))
    assert list(body.config.bayesattn["layers"]) == ["encoder.layer.1.attention.self"]


def test_a_reverted_model_is_saved_as_it_was(tmp_path: Path) -> None:
    model: Any = ba.convert(BY_NAME["BERT"].build(), POSTERIORS["weibull"])
    ba.revert(model)
    model.save_pretrained(tmp_path)
    assert "bayesattn" not in json.loads((tmp_path / "config.json").read_text())
    with pytest.raises(ValueError, match=r"holds no converted model.*convert it with ba\.convert"):
        from_pretrained(type(model), tmp_path)


def test_missing_parameters_are_noticed(tmp_path: Path) -> None:
    model: Any = ba.convert(BY_NAME["BERT"].build(), POSTERIORS["weibull"])
    described = model.config.bayesattn
    ba.revert(model)
    model.config.bayesattn = described
    model.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"lacks 8 parameters of its posteriors.*posterior\.prior\.network"):
        from_pretrained(type(model), tmp_path)


def test_damaged_files_are_named(tmp_path: Path, unchecked: None) -> None:
    model: Any = ba.convert(BY_NAME["BERT"].build(), POSTERIORS["weibull"])
    model.save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    whole, weights = path.read_text(), (tmp_path / "model.safetensors").read_bytes()

    def entry(change: Any) -> str:
        content = json.loads(whole)
        change(content["bayesattn"])
        return json.dumps(content)

    for text, message in (
        (whole[:-20], "config.json is not JSON"),
        ("[1]", "config.json must hold a JSON object"),
        (entry(lambda e: e.update(layers=[1])), "'layers' must say the posterior of each layer"),
        (entry(lambda e: e.update(layers={"x": {"class": "Weibull"}})), "has none of the converted layers"),
        (entry(lambda e: next(iter(e["layers"].values())).update(k="ten")), "TypeError: k must be a number"),
        (entry(lambda e: next(iter(e["layers"].values())).update({"class": "os.system"})), "class='os.system' is not"),
    ):
        path.write_text(text)
        with pytest.raises(ValueError, match=f"(?s){tmp_path}.*{message}"):
            from_pretrained(type(model), tmp_path)
    path.write_text(whole)
    (tmp_path / "model.safetensors").write_bytes(weights[:1000])
    with pytest.raises(ValueError, match=f"{tmp_path}.* cannot be loaded .*SafetensorError"):
        from_pretrained(type(model), tmp_path)
