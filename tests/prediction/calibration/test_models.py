"""Calibration of the models that people have: texts, taggers, images, regressions, graphs; and how heads are found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayesattn as ba

SIZES: dict[str, Any] = {
    "vocab_size": 61,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "max_position_embeddings": 32,
    "pad_token_id": 0,
}


def texts(n: int, seed: int) -> dict[str, Tensor]:
    """Token ids of texts of two lengths, padded."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(3, 61, (n, 7), generator=generator)
    mask = torch.ones_like(ids)
    mask[::2, 4:] = 0
    return {"input_ids": ids * mask, "attention_mask": mask}


def batches(n: int, seed: int, make: Any) -> list[dict[str, Tensor]]:
    """As a collator of Hugging Face gives them."""
    return [{**texts(n // 2, seed + part), "labels": make(n // 2)} for part in range(2)]


def text_model(kind: str, **settings: Any) -> Any:
    transformers = pytest.importorskip("transformers", reason="needs the hf extra: pip install 'bayesattn[hf]'")
    torch.manual_seed(0)
    name = kind.partition("For")[0]
    return getattr(transformers, kind)(getattr(transformers, f"{name}Config")(**SIZES, **settings))


def same_again(knowing: ba.CalibratedModel, again: ba.CalibratedModel, inputs: Any) -> None:
    one, other = (each.predict(inputs, generator=torch.Generator().manual_seed(3)) for each in (knowing, again))
    assert torch.equal(one.mean, other.mean)
    assert torch.equal(one.outlier, other.outlier)


@pytest.mark.parametrize("kind", ["BertForSequenceClassification", "RobertaForSequenceClassification"])
def test_a_text_classifier_in_its_folder(tmp_path: Path, kind: str) -> None:
    """Converted, saved with `save_pretrained`, loaded again with its calibration."""
    model = ba.convert(text_model(kind, num_labels=4), ba.Weibull(k=3.0))
    from bayesattn.huggingface import from_pretrained

    make = lambda n: torch.randint(4, (n,))  # noqa: E731
    knowing = ba.calibrate(model, batches(60, 1, make), train=batches(80, 5, make), samples=3)
    assert knowing.settings.head == ("classifier" if kind.startswith("Bert") else "classifier.out_proj")
    assert knowing.settings.random
    model.save_pretrained(tmp_path)
    knowing.save(tmp_path)
    again = ba.load_calibration(from_pretrained(type(model), tmp_path), tmp_path)
    same_again(knowing, again, texts(5, 9))
    assert knowing.predict(texts(5, 9)).abstain(0.9).answered.shape == (5,)


def test_a_decoder_that_classifies_by_its_last_token() -> None:
    model = text_model("LlamaForSequenceClassification", num_labels=4)
    make = lambda n: torch.randint(4, (n,))  # noqa: E731
    knowing = ba.calibrate(model, batches(40, 1, make), train=batches(60, 5, make))
    assert knowing.settings.head == "score"
    inputs = texts(6, 9)
    hidden = model.eval().model(**inputs).last_hidden_state
    last = hidden[torch.arange(6), inputs["attention_mask"].sum(1) - 1]
    assert knowing.features is not None
    assert torch.allclose(knowing.predict(inputs).distance, knowing.features.to_classes(last), rtol=1e-3)


def test_a_tagger_judges_one_token_of_each_text() -> None:
    model = text_model("BertForTokenClassification", num_labels=5)

    def tagged(n: int, seed: int) -> list[dict[str, Tensor]]:
        found = batches(n, seed, lambda n: torch.randint(5, (n, 7)))
        for batch in found:
            batch["labels"] = batch["labels"].masked_fill(batch["attention_mask"] == 0, -100)
        return found

    held_out = tagged(80, 1)
    knowing = ba.calibrate(model, held_out, train=tagged(40, 5))
    assert len(knowing.evidence) == 80
    everything = ba.calibrate(model, held_out, positions="all")
    assert len(everything.evidence) == sum(int((batch["labels"] != -100).sum()) for batch in held_out)
    assert set(knowing.evidence.scores["energy"].tolist()) <= set(everything.evidence.scores["energy"].tolist())
    answer = knowing.predict(texts(6, 9))
    assert answer.distance.shape == answer.outlier.shape == answer.abstain(0.9).answered.shape == (6, 7)
    assert answer.sets(0.9).shape == (6, 7, 5)


def test_a_vision_transformer() -> None:
    transformers = pytest.importorskip("transformers", reason="needs the hf extra: pip install 'bayesattn[hf]'")
    sizes = {name: SIZES[name] for name in ("hidden_size", "num_hidden_layers", "num_attention_heads")}
    config = transformers.ViTConfig(image_size=8, patch_size=4, intermediate_size=16, num_labels=3, **sizes)
    torch.manual_seed(0)
    model = ba.convert(transformers.ViTForImageClassification(config), ba.LogNormal(sigma=0.5))
    images, labels = torch.randn(60, 3, 8, 8), torch.randint(3, (60,))
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(images, labels), batch_size=16)
    knowing = ba.calibrate(model, loader, train=loader, samples=2)
    assert knowing.settings.head == "classifier"
    assert knowing.predict(images[:3]).relative_distance.isfinite().all()


def test_a_regression_head() -> None:
    model = text_model("BertForSequenceClassification", num_labels=1)
    knowing = ba.calibrate(model, batches(60, 1, torch.randn), train=batches(60, 5, torch.randn))
    answer = knowing.predict(texts(4, 9))
    lower, upper = answer.sets(0.8)
    assert torch.allclose((upper - lower) / 2, knowing.evidence.residuals.sort(0).values[48].expand(4, 1))
    assert answer.distance.shape == (4,)
    assert knowing.settings.likelihood == "values"


class OnGraph(nn.Module):
    """One graph is one example: features [graphs, nodes, …] → logits [graphs, nodes, classes]."""

    def __init__(self) -> None:
        super().__init__()
        geometric = pytest.importorskip(
            "torch_geometric.nn", reason="needs the graphs extra: pip install 'bayesattn[graphs]'"
        )
        torch.manual_seed(0)
        self.first, self.second = geometric.GATConv(6, 4, heads=2), geometric.GATConv(8, 3)
        self.register_buffer("edges", torch.randint(0, 200, (2, 600)))

    def forward(self, features: Tensor) -> Tensor:
        return torch.stack([self.second(self.first(one, self.edges).tanh(), self.edges) for one in features])


def test_a_graph_network_whose_nodes_are_the_rows() -> None:
    model = ba.convert(OnGraph(), ba.Weibull(k=2.0))
    features, labels = torch.randn(1, 200, 6), torch.randint(3, (1, 200))
    train, held_out = labels.clone(), labels.clone()
    train[:, 80:] = -100
    held_out[:, :80] = -100
    knowing = ba.calibrate(model, (features, held_out), train=(features, train), positions="all", samples=3)
    assert knowing.settings.head == "second"
    assert len(knowing.evidence) == 120
    answer = knowing.predict(features)
    assert answer.outlier.shape == (1, 200)
    expected = model.eval().first(features[0], model.edges).tanh()
    assert knowing.features is not None
    assert torch.allclose(answer.distance[0], knowing.features.to_classes(expected), rtol=1e-3)


def test_random_weights_and_ensembles() -> None:
    x, y = torch.randn(60, 3), torch.randint(2, (60,))
    make = lambda: nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2)).eval()  # noqa: E731
    laplace = ba.weight_space.laplace(make(), x, "categorical")
    knowing = ba.calibrate(laplace, (x, y), train=(x, y), samples=4)
    assert knowing.settings.random
    assert knowing.predict(x).score("mutual_information").max() > 0
    members = ba.weight_space.ensemble(make, n=3)
    with pytest.raises(ValueError, match="its head is not known"):
        ba.calibrate(members, (x, y), train=(x, y), samples=3)
    knowing = ba.calibrate(members, (x, y), train=(x, y), samples=3, head="members.1.2")
    assert knowing.features is not None
    features = members.members[1][:2](x)
    assert torch.allclose(knowing.predict(x).distance, knowing.features.to_classes(features), rtol=1e-4)


class Scaled(nn.Module):
    """Does more with what its head gives."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head, self.unused = nn.Linear(3, 4), nn.Linear(4, 2), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return 2.0 * self.head(self.body(x).tanh().unsqueeze(1)).squeeze(1)


def test_a_head_that_is_not_found_is_asked_for_by_name() -> None:
    model, x, y = Scaled(), torch.randn(50, 3), torch.randint(2, (50,))
    with pytest.raises(ValueError, match=r"No layer of Scaled gives.*head='unused' or head='head' or head='body'"):
        ba.calibrate(model, (x, y), train=(x, y))
    knowing = ba.calibrate(model, (x, y), train=(x, y), head="head")
    assert knowing.features is not None
    assert torch.allclose(knowing.predict(x).distance, knowing.features.to_classes(model.body(x).tanh()), rtol=1e-4)
    with pytest.raises(ValueError, match="head='unused' does not run"):
        ba.calibrate(model, (x, y), train=(x, y), head="unused")


def test_a_layer_before_the_pooling_is_no_head() -> None:
    class Pooled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.head = nn.Linear(3, 4), nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.tokens(x).mean(1))

    x, y = torch.randn(20, 5, 3), torch.randint(2, (20,))
    with pytest.raises(ValueError, match=r"head='tokens' takes features \(20, 5, 3\).*comes after the pooling"):
        ba.calibrate(Pooled(), (x, y), train=(x, y), head="tokens")
