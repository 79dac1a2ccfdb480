"""BayesianTrainer against a plain loop, and against itself in other arrangements of the same data."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import bayesattn as ba

pytest.importorskip("transformers", reason="needs the hf extra: pip install 'bayesattn[hf]'")

import transformers

from bayesattn.huggingface import BayesianTrainer

LENGTH, EXAMPLES = 6, 16


def classifier(posterior: ba.Posterior | None) -> Any:
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=40,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=16,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    model = transformers.BertForSequenceClassification(config)
    return model if posterior is None else ba.convert(model, posterior)


def language_model(posterior: ba.Posterior | None) -> Any:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=40, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16
    )
    model = transformers.LlamaForCausalLM(config)
    return model if posterior is None else ba.convert(model, posterior)


def classification_data() -> list[dict[str, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(3, 40, (EXAMPLES, LENGTH), generator=generator)
    return [{"input_ids": row, "attention_mask": torch.ones_like(row), "labels": row.sum() % 2} for row in ids]


def language_data() -> list[dict[str, Tensor]]:
    """Texts of very different lengths, so that a mean of means is not the mean."""
    generator = torch.Generator().manual_seed(1)
    data = []
    for index in range(EXAMPLES):
        ids = torch.randint(3, 40, (LENGTH,), generator=generator)
        mask = (torch.arange(LENGTH) < 2 + 4 * (index % 2)).long()
        data.append({"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, -100)})
    return data


def no_noise() -> ba.Posterior:
    """A posterior with next to no noise but with a KL, so that arrangements of the data can be compared."""
    return ba.Weibull(k=1e6, prior=ba.ContextualGamma(beta=1.0, hidden=3))


SUMMED: dict[str, Any] = {"kl_reduction": "sum", "compare_gradients": False}
"""A KL that weighs as much as the likelihood, so that nothing is right without it."""


def train(
    folder: Path,
    model: nn.Module,
    data: list[dict[str, Tensor]],
    kl_weight: Any = 0.1,
    cls: Any = None,
    **arguments: Any,
) -> Any:
    settings: dict[str, Any] = {
        "output_dir": str(folder),
        "per_device_train_batch_size": 4,
        "max_steps": 4,
        "learning_rate": 1e-2,
        "logging_steps": 1,
        "report_to": "none",
        "use_cpu": True,
        "save_strategy": "no",
        "disable_tqdm": True,
        "train_sampling_strategy": "sequential",
        "dataloader_pin_memory": False,
        **arguments,
    }
    kwargs = {} if cls is transformers.Trainer else {"kl_weight": kl_weight, **SUMMED}
    trainer = (cls or BayesianTrainer)(
        model=model, args=transformers.TrainingArguments(**settings), train_dataset=data, **kwargs
    )
    trainer.train()
    return trainer


def curve(trainer: Any, name: str = "loss") -> list[float]:
    return [entry[name] for entry in trainer.state.log_history if name in entry]


def weights(model: nn.Module) -> Tensor:
    """All but the prior's last bias: a softmax does not see it, and Adam makes steps of its rounding errors."""
    seen = [weight for name, weight in model.named_parameters() if not name.endswith("network.outer.bias")]
    return torch.cat([weight.detach().flatten() for weight in seen])


def test_the_plain_loop_has_the_same_loss_curve(tmp_path: Path) -> None:
    posterior = ba.Weibull(k=5.0, prior=ba.ContextualGamma(beta=1.0, hidden=3))
    schedule = ba.schedules.linear(4)
    trainer = train(tmp_path, classifier(posterior), classification_data(), schedule, seed=3, max_grad_norm=0.0)

    model = classifier(posterior).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.0)
    decay = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / 4)
    transformers.set_seed(3)
    loader = torch.utils.data.DataLoader(classification_data(), batch_size=4)  # pyright: ignore[reportArgumentType]
    losses, nlls = [], []
    for step, batch in enumerate(loader):
        labels = batch.pop("labels")
        with ba.record() as latents:
            logits = model(**batch).logits
        nll = F.cross_entropy(logits, labels, reduction="none")
        loss = ba.elbo(nll, latents, kl_weight=schedule(step), kl_reduction="sum", compare_gradients=False)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        decay.step()
        losses.append(loss.loss.item())
        nlls.append(loss.nll.item())
    assert curve(trainer) == pytest.approx(losses, rel=1e-3, abs=2e-4)
    assert curve(trainer, "nll") == pytest.approx(nlls, rel=1e-3, abs=2e-4)
    assert curve(trainer, "kl_weight") == [0.0, 0.25, 0.5, 0.75]
    torch.testing.assert_close(weights(trainer.model), weights(model), atol=1e-4, rtol=1e-3)


def test_the_parts_of_the_loss_are_logged_and_add_up(tmp_path: Path) -> None:
    trainer = train(tmp_path, classifier(ba.Weibull(k=5.0)), classification_data(), 0.1, logging_steps=2)
    losses, nlls, kls = (curve(trainer, name) for name in ("loss", "nll", "kl"))
    assert len(losses) == 2
    assert losses == pytest.approx([nll + 0.1 * kl for nll, kl in zip(nlls, kls, strict=True)], rel=1e-3)
    assert all(kl > 1.0 for kl in kls)


@pytest.mark.parametrize(
    ("make", "data"), [(classifier, classification_data), (language_model, language_data)], ids=["examples", "tokens"]
)
def test_gradient_accumulation_is_the_larger_batch(tmp_path: Path, make: Any, data: Any) -> None:
    whole = train(tmp_path, make(no_noise()), data(), max_steps=2, per_device_train_batch_size=8)
    parts = train(
        tmp_path, make(no_noise()), data(), max_steps=2, per_device_train_batch_size=2, gradient_accumulation_steps=4
    )
    assert curve(parts) == pytest.approx(curve(whole), rel=1e-4, abs=2e-4)
    assert curve(parts, "kl") == pytest.approx(curve(whole, "kl"), rel=1e-4, abs=2e-4)
    torch.testing.assert_close(weights(parts.model), weights(whole.model), atol=1e-4, rtol=1e-3)


def test_without_a_kl_it_is_the_trainer(tmp_path: Path) -> None:
    """On a language model, whose loss transformers itself normalises over accumulated tokens."""
    arguments = {"gradient_accumulation_steps": 2, "max_steps": 2}
    ours = train(tmp_path, language_model(ba.Softmax()), language_data(), **arguments)
    theirs = train(tmp_path, language_model(None), language_data(), cls=transformers.Trainer, **arguments)
    assert curve(ours) == pytest.approx(curve(theirs), rel=1e-4)
    assert curve(ours, "kl") == [0.0, 0.0]


def test_the_kl_per_token_of_a_language_model_is_the_sum_over_texts_by_tokens(tmp_path: Path) -> None:
    model = language_model(no_noise())
    batch = {name: torch.stack([row[name] for row in language_data()[:4]]) for name in language_data()[0]}
    model.train()
    with ba.record() as latents:
        logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
    labels = batch["labels"][:, 1:]
    tokens = labels.ne(-100).sum()
    nll = F.cross_entropy(logits[:, :-1].transpose(1, 2), labels, reduction="none").sum() / tokens
    trainer = train(tmp_path, language_model(no_noise()), language_data(), max_steps=1)
    assert curve(trainer, "nll")[0] == pytest.approx(nll.item(), rel=1e-3)
    assert curve(trainer, "kl")[0] == pytest.approx((latents.local_kl.sum() / tokens).item(), rel=1e-3)


def test_bf16_keeps_the_kl_in_float32(tmp_path: Path) -> None:
    full = train(tmp_path, classifier(no_noise()), classification_data(), max_steps=2)
    mixed = train(tmp_path, classifier(no_noise()), classification_data(), max_steps=2, bf16=True)
    assert curve(mixed, "kl") == pytest.approx(curve(full, "kl"), rel=5e-3)
    assert curve(mixed, "nll") == pytest.approx(curve(full, "nll"), abs=2e-2)
    assert all(weight.dtype == torch.float32 for weight in mixed.model.parameters())


def test_evaluation_is_the_trainers_own(tmp_path: Path) -> None:
    model = classifier(ba.Weibull(k=2.0))
    trainer = train(tmp_path, model, classification_data(), max_steps=1)
    batch = {name: torch.stack([row[name] for row in classification_data()]) for name in classification_data()[0]}
    with torch.no_grad():
        expected = model.eval()(**batch).loss.item()
    metrics = trainer.evaluate(classification_data())
    assert metrics["eval_loss"] == pytest.approx(expected, rel=1e-4)


def test_a_checkpoint_is_resumed_with_its_posterior(tmp_path: Path) -> None:
    arguments = {"save_strategy": "steps", "save_steps": 2, "max_steps": 4}
    trainer = train(tmp_path, classifier(no_noise()), classification_data(), **arguments)
    checkpoint = ba.huggingface.from_pretrained(  # pyright: ignore[reportAttributeAccessIssue]
        transformers.BertForSequenceClassification, tmp_path / "checkpoint-4"
    )
    torch.testing.assert_close(weights(checkpoint), weights(trainer.model))
    resumed = BayesianTrainer(
        model=classifier(no_noise()), args=trainer.args, train_dataset=classification_data(), kl_weight=0.1, **SUMMED
    )
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    torch.testing.assert_close(weights(resumed.model), weights(trainer.model), atol=1e-5, rtol=1e-4)


def test_an_unconverted_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="latents is empty: nothing Bayesian ran"):
        train(tmp_path, classifier(None), classification_data(), max_steps=1)


def test_data_parallel_is_refused(tmp_path: Path) -> None:
    arguments = transformers.TrainingArguments(output_dir=str(tmp_path), use_cpu=True, report_to="none")
    arguments._n_gpu = 2
    with pytest.raises(ValueError, match=r"does not run under torch\.nn\.DataParallel.*torchrun"):
        BayesianTrainer(model=classifier(no_noise()), args=arguments, train_dataset=classification_data())


@pytest.mark.slow
def test_two_processes_are_the_larger_batch(tmp_path: Path) -> None:
    """Distributed data parallel over gloo; the prior network is reached through the KL alone."""
    script = tmp_path / "run.py"
    script.write_text(
        textwrap.dedent(
            f"""
            import json, pathlib, sys, warnings
            sys.path.insert(0, {str(Path(__file__).parent)!r})
            import torch
            torch.set_num_threads(1)
            from test_trainer import classification_data, classifier, curve, no_noise, train, weights
            folder = pathlib.Path({str(tmp_path)!r})
            trainer = train(folder, classifier(no_noise()), classification_data(), max_steps=2, ddp_backend="gloo")
            if trainer.args.process_index == 0:
                result = {{"weights": weights(trainer.model).tolist()}}
                result |= {{name: curve(trainer, name) for name in ("loss", "nll", "kl")}}
                (folder / "result.json").write_text(json.dumps(result))
            """
        )
    )
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(script)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=240, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads((tmp_path / "result.json").read_text())
    whole = train(tmp_path, classifier(no_noise()), classification_data(), max_steps=2, per_device_train_batch_size=8)
    for name in ("loss", "nll", "kl"):
        assert result[name] == pytest.approx(curve(whole, name), rel=1e-3, abs=1e-3), name
    torch.testing.assert_close(torch.tensor(result["weights"]), weights(whole.model), atol=1e-4, rtol=1e-3)


def test_by_default_the_kl_is_light_and_one_that_dwarfs_the_likelihood_is_told(tmp_path: Path) -> None:
    def kl_of(**changes: Any) -> float:
        arguments = transformers.TrainingArguments(
            str(tmp_path),
            max_steps=1,
            use_cpu=True,
            report_to="none",
            disable_tqdm=True,
            save_strategy="no",
            logging_steps=1,
        )
        model = classifier(ba.Weibull(k=5.0))
        trainer = BayesianTrainer(model=model, args=arguments, train_dataset=classification_data(), **changes)
        trainer.train()
        return curve(trainer, "kl")[0]

    assert kl_of() == pytest.approx(0.01 * kl_of(kl_reduction="mean", compare_gradients=False), rel=1e-3)
    with pytest.warns(UserWarning, match="The KL's gradient is [0-9]+ times the likelihood's"):
        kl_of(kl_reduction="sum", kl_weight=1e4)
