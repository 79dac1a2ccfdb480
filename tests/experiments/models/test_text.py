"""A pretrained encoder with its lower layers run once, on a tiny BERT."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

pytest.importorskip("transformers", reason="needs the hf extra: pip install 'bayesattn[hf]'")

import transformers

import bayesattn as ba
from bayesattn.experiments.models.text import TextModel, frozen

SIZES = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 24, "vocab_size": 30}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bert")
    transformers.BertModel(transformers.BertConfig(**SIZES)).save_pretrained(folder)
    return folder


def tokens() -> torch.Tensor:
    """Four texts of 9, 6, 6 and 4 tokens in 12 places; the second half of each is its second sentence."""
    found = torch.zeros(4, 3, 12, dtype=torch.long)
    for row, length in enumerate((9, 6, 6, 4)):
        found[row, 0, :length] = torch.arange(length) + 3 + row
        found[row, 1, :length] = 1
        found[row, 2, length // 2 : length] = 1
    return found


def test_what_the_frozen_layers_give_is_what_the_whole_model_takes_from_them(path: Path) -> None:
    whole, upper = TextModel(path, 2, 0.0).eval(), TextModel(path, 2, 0.0, frozen_layers=2).eval()
    upper.network.classifier.load_state_dict(whole.network.classifier.state_dict())
    hidden = frozen(path, 2, tokens(), batch=3)
    assert hidden.shape == (4, 12, 16)
    assert (hidden[3, 4:] == 0).all()
    torch.testing.assert_close(upper(hidden), whole(tokens()), atol=2e-3, rtol=1e-2)  # kept in float16
    assert (whole(tokens())[0] - whole(tokens())[1]).abs().max() > 1e-4


def test_only_the_layers_above_are_there_and_become_random(path: Path) -> None:
    upper = ba.convert(TextModel(path, 2, 0.0, frozen_layers=2), ba.Weibull(k=2.0))
    with ba.record() as latents:
        upper(frozen(path, 2, tokens()))
    assert len(latents.local_terms) == 1
    assert latents.local_terms[0].tokens.tolist() == [9, 6, 6, 4]  # padding is not counted


def test_padding_beyond_the_longest_text_changes_nothing(path: Path) -> None:
    model = TextModel(path, 2, 0.0).eval()
    torch.testing.assert_close(model(tokens()[1:]), model(tokens())[1:])


def test_a_regression_gives_a_mean_and_a_scale(path: Path) -> None:
    mean, scale = TextModel(path, 2, 0.0, regression=True).eval()(tokens())
    assert mean.shape == scale.shape == (4,)
    assert (scale > 0).all()
    assert (mean - 2.5).abs().max() < 2.5


def test_encoders_of_another_make_and_impossible_numbers_are_refused(path: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="frozen_layers=3 must leave some of the 3 layers to train"):
        TextModel(path, 2, 0.0, frozen_layers=3)
    small = {name: size for name, size in SIZES.items() if name != "num_hidden_layers"}
    transformers.AlbertModel(transformers.AlbertConfig(embedding_size=8, **small)).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="AlbertModel is not: set frozen_layers=0"):
        TextModel(tmp_path, 2, 0.0, frozen_layers=1)
    assert TextModel(tmp_path, 2, 0.0).eval()(tokens()).shape == (4, 2)


def test_the_last_layer_of_the_first_token_alone_gives_berts_outputs_kl_and_gradients(path: Path) -> None:
    model = TextModel(path, 2, 0.0).double().train()
    theirs = transformers.BertForSequenceClassification.from_pretrained(
        path, num_labels=2, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    )
    theirs.double().train().load_state_dict(model.network.state_dict())
    ids, mask, types = tokens()[:, :, :9].unbind(1)
    passes = {
        "ours": (ba.convert(model, ba.Weibull(k=2.0)), lambda: model(tokens())),
        "theirs": (
            ba.convert(theirs, ba.Weibull(k=2.0)),
            lambda: theirs(input_ids=ids, attention_mask=mask, token_type_ids=types).logits,
        ),
    }
    found = {}
    for name, (network, forward) in passes.items():
        torch.manual_seed(0)
        with ba.record() as latents:
            logits = forward()
        (logits.square().sum() + latents.local_kl.sum()).backward()
        gradients = {key.removeprefix("network."): p.grad for key, p in network.named_parameters()}
        found[name] = {"logits": logits, "kl": latents.local_kl} | gradients
    torch.testing.assert_close(found["ours"], found["theirs"])
    seen: list[int] = []
    model.network.base_model.encoder.layer[-1].intermediate.register_forward_hook(
        lambda module, inputs, output: seen.append(output.shape[1])
    )
    model(tokens())
    assert seen == [1]
