"""Converted models in the tools around transformers: pickle, processes, pipelines, the plain Trainer, accelerate, Lightning."""

from __future__ import annotations

import copy
import io
import pickle
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import bayesattn as ba

pytest.importorskip("transformers", reason="needs the hf extra: pip install 'bayesattn[hf]'")

import transformers

from bayesattn.huggingface import BayesianTrainer, from_pretrained

SIZES: dict[str, Any] = {
    "vocab_size": 31,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
POSTERIOR = ba.Weibull(k=5.0, prior=ba.ContextualGamma(beta=1.0, hidden=3))
INPUTS = {
    "input_ids": torch.arange(3, 15).view(2, 6),
    "attention_mask": torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0]]),
}


def classifier(kind: str = "Bert", posterior: ba.Posterior | None = POSTERIOR) -> Any:
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**SIZES)
    model = getattr(transformers, f"{kind}ForSequenceClassification")(config).eval()
    return model if posterior is None else ba.convert(model, posterior)


def sampled(model: Any) -> tuple[Tensor, Tensor]:
    torch.manual_seed(4)
    with ba.sampling(), ba.record() as latents, torch.no_grad():
        logits = model(**INPUTS).logits
    return logits, latents.local_kl


@pytest.mark.parametrize("kind", ["Bert", "RoFormer"])
def test_pickled_and_saved_whole_it_is_the_same_and_can_be_reverted(kind: str) -> None:
    model = classifier(kind)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    for again in (pickle.loads(pickle.dumps(model)), torch.load(file, weights_only=False), copy.deepcopy(model)):
        for actual, expected in zip(sampled(again), sampled(model), strict=True):
            assert torch.equal(actual, expected)
        assert [type(module) for module in again.modules()] == [type(module) for module in model.modules()]
        ba.revert(again)
        assert torch.equal(again(**INPUTS).logits, ba.revert(copy.deepcopy(model))(**INPUTS).logits)


def send_back(model: Any, queue: Any) -> None:
    queue.put([tensor.tolist() for tensor in sampled(model)])


@pytest.mark.slow
def test_sent_to_a_process_that_is_spawned() -> None:
    context = torch.multiprocessing.get_context("spawn")
    queue = context.Queue()
    model = classifier("RoFormer")
    process = context.Process(target=send_back, args=(model, queue))
    process.start()
    answer = queue.get(timeout=120)
    process.join()
    assert answer == [tensor.tolist() for tensor in sampled(model)]


def tokenizer(folder: Path) -> Any:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "good", "bad", "film", "is", "this", "who", "?"]
    (folder / "vocab.txt").write_text("\n".join(words))
    return transformers.BertTokenizer(str(folder / "vocab.txt"))


def test_predict_takes_texts(tmp_path: Path) -> None:
    model, words = classifier(), tokenizer(tmp_path)
    texts = ["this is a good film", "bad"]
    generator = torch.Generator().manual_seed(1)
    prediction = ba.predict(model, texts, samples=5, tokenizer=words, generator=generator)
    generator.manual_seed(1)
    encoded = words(texts, padding=True, return_tensors="pt")
    expected = ba.predict(model, encoded, samples=5, generator=generator)
    assert torch.equal(prediction.samples, expected.samples)
    assert ba.predict(model, "bad", samples=2, tokenizer=words).mean.shape == (1, 2)
    pairs = ba.predict(model, [("who is this ?", "a film"), ("who ?", "a bad film")], samples=2, tokenizer=words)
    assert pairs.mean.shape == (2, 2)
    with pytest.raises(TypeError, match="inputs are texts: pass tokenizer="):
        ba.predict(model, texts)
    with pytest.raises(TypeError, match="With tokenizer=, inputs must be a text"):
        ba.predict(model, INPUTS, tokenizer=words)


def test_question_answering_has_two_outputs() -> None:
    config = transformers.BertConfig(**SIZES)
    model = ba.convert(transformers.BertForQuestionAnswering(config), POSTERIOR)
    both = ba.predict(model, INPUTS, samples=4, output=lambda out: torch.stack([out.start_logits, out.end_logits], 1))
    assert both.mean.shape == (2, 2, 6)
    torch.testing.assert_close(both.mean.sum(-1), torch.ones(2, 2))
    with pytest.raises(TypeError, match="say with output="):
        ba.predict(model, INPUTS)


def test_a_pipeline_of_a_saved_folder_is_the_point_estimate_and_samples_in_a_block(tmp_path: Path) -> None:
    model, words = classifier(), tokenizer(tmp_path)
    model.save_pretrained(tmp_path)
    words.save_pretrained(tmp_path)
    loaded = from_pretrained(transformers.AutoModelForSequenceClassification, tmp_path)
    classify = transformers.pipeline("text-classification", model=loaded, tokenizer=words, device="cpu")
    text = "this is a good film"
    expected = model(**words(text, return_tensors="pt")).logits.softmax(-1).max().item()
    assert classify(text)[0]["score"] == pytest.approx(expected, abs=1e-6)
    assert classify(text) == classify(text)
    with ba.sampling():
        assert classify(text)[0]["score"] != classify(text)[0]["score"]


def data() -> list[dict[str, Tensor]]:
    return [{"input_ids": row, "labels": torch.tensor(index % 2)} for index, row in enumerate(INPUTS["input_ids"])] * 2


def train(kind: Any, model: Any, folder: Path) -> list[str]:
    arguments = transformers.TrainingArguments(
        str(folder),
        max_steps=2,
        per_device_train_batch_size=2,
        use_cpu=True,
        report_to="none",
        disable_tqdm=True,
        save_strategy="no",
    )
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        kind(model=model, args=arguments, train_dataset=data()).train()
    return [str(each.message) for each in said if "not in the loss" in str(each.message)]


def test_the_plain_trainer_is_told_once_that_the_kl_is_not_in_its_loss(tmp_path: Path) -> None:
    words = train(transformers.Trainer, classifier(), tmp_path)
    assert len(words) == 1
    assert "BertForSequenceClassification is Bayesian" in words[0]
    assert "BayesianTrainer" in words[0]
    assert train(transformers.Trainer, classifier(posterior=ba.Softmax()), tmp_path) == []
    assert train(transformers.Trainer, ba.revert(classifier()), tmp_path) == []
    assert train(BayesianTrainer, classifier(), tmp_path) == []


def loss_of(model: Any, batch: dict[str, Tensor]) -> Tensor:
    with ba.record() as latents:
        logits = model(**{name: value for name, value in batch.items() if name != "labels"}).logits
    return ba.elbo(
        F.cross_entropy(logits, batch["labels"], reduction="none"),
        latents,
        kl_weight=0.1,
        kl_reduction="sum",
        compare_gradients=False,
    ).loss


def by_hand(model: Any) -> Any:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(2)
    for row in range(2):
        batch = {"input_ids": INPUTS["input_ids"][row : row + 1], "labels": torch.tensor([row])}
        loss_of(model.train(), batch).backward()
        optimizer.step()
        optimizer.zero_grad()
    return model


def same_weights(one: Any, other: Any) -> None:
    weights = dict(other.named_parameters())
    for name, weight in one.named_parameters():
        torch.testing.assert_close(weight, weights[name], msg=name)


def test_accelerate_trains_as_a_plain_loop_does() -> None:
    import accelerate

    accelerator = accelerate.Accelerator(cpu=True)
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    prepared, optimizer = accelerator.prepare(model.train(), optimizer)
    torch.manual_seed(2)
    for row in range(2):
        batch = {"input_ids": INPUTS["input_ids"][row : row + 1], "labels": torch.tensor([row])}
        accelerator.backward(loss_of(prepared, batch))
        optimizer.step()
        optimizer.zero_grad()
    same_weights(accelerator.unwrap_model(prepared), by_hand(classifier()))


@pytest.mark.slow
def test_lightning_trains_as_a_plain_loop_does(tmp_path: Path) -> None:
    lightning = pytest.importorskip("lightning.pytorch", reason="needs lightning: pip install lightning")

    class Classifier(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = classifier().train()

        def on_train_start(self) -> None:
            torch.manual_seed(2)

        def training_step(self, batch: dict[str, Tensor], index: int) -> Tensor:
            return loss_of(self.model, batch)

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    rows = [{"input_ids": INPUTS["input_ids"][row], "labels": torch.tensor(row)} for row in range(2)]
    module = Classifier()
    trainer = lightning.Trainer(
        max_epochs=1,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        default_root_dir=tmp_path,
    )
    trainer.fit(module, torch.utils.data.DataLoader(rows, batch_size=1))
    same_weights(module.model, by_hand(classifier()))
