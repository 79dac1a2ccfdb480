"""Files that the library itself has written, and that somebody may have damaged since: runs, checkpoints, models, figures."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
import transformers

import bayesattn as ba
from bayesattn.experiments.runs import RunFolder, configure, load_run, run
from bayesattn.experiments.tables import results as kept_results
from bayesattn.huggingface import from_pretrained
from bayesattn.weight_space.priors import WeightPrior, load_priors, save_priors
from torture.attention_cases import expect
from torture.damage import damaged_json, damaged_lines, damaged_pickle, damaged_safetensors, damaged_zip
from torture.file_formats import ATTACK, Damage, Format

TINY = {"hidden": 8, "feedforward": 8}


@cache
def _finished_run() -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as folder:
        config = configure("toy-m1", "bam-wc", training={"epochs": 1, "samples": 2}, task_options=TINY)
        run(config, Path(folder))
        made = RunFolder.of(Path(folder), config)
        made.write_checkpoint({"epoch": 1, "finished": [], "history": [], "seconds": 1.0, "weight": torch.ones(3)})
        names = ("config.json", "result.json", "model.safetensors", "metrics.jsonl", "checkpoint.pt")
        return {f"run/{name}": (made.path / name).read_bytes() for name in names}


def _run() -> Format:
    damages: dict[str, Damage] = {
        "run/result.json": damaged_json,
        "run/config.json": damaged_json,
        "run/model.safetensors": damaged_safetensors,
        "run/metrics.jsonl": damaged_lines,
    }

    def load(folder: Path) -> Any:
        return load_run(folder / "run"), RunFolder(folder / "run").history()

    def check(loaded: Any) -> None:
        found, history = loaded
        expect(bool(found.models) and isinstance(found.result["metrics"], dict), "no models, or no metrics")
        expect(all(isinstance(line, dict) for line in history), "a line of the history is no record")

    return Format(_finished_run(), damages, load, check)


def _checkpoint() -> Format:
    return Format(
        {"run/checkpoint.pt": _finished_run()["run/checkpoint.pt"]},
        {"run/checkpoint.pt": partial(damaged_zip, inside=partial(damaged_pickle, attack=ATTACK))},
        lambda folder: RunFolder(folder / "run").read_checkpoint(),
        lambda state: expect(isinstance(state, dict), "no state"),
    )


def _saved_model() -> Format:
    settings = transformers.BertConfig(
        vocab_size=7, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8
    )
    model = ba.convert(
        transformers.BertModel(settings), ba.Weibull(k=20.0, prior=ba.ContextualGamma(beta=0.5, hidden=2))
    )
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)  # pyright: ignore[reportCallIssue]
        files = {f"model/{name}": (Path(folder) / name).read_bytes() for name in ("config.json", "model.safetensors")}
    # a model of 10^30 layers is what transformers is asked for then: sizes that are its own are left alone
    sizes = tuple(key for key in json.loads(files["model/config.json"]) if key != "bayesattn")
    damages: dict[str, Damage] = {
        "model/config.json": partial(damaged_json, spare=sizes),
        "model/model.safetensors": damaged_safetensors,
    }

    def check(loaded: Any) -> None:
        output = loaded(torch.tensor([[1, 2, 3]])).last_hidden_state
        expect(output.shape == (1, 3, 8), "another model")

    return Format(files, damages, lambda folder: from_pretrained(transformers.BertModel, folder / "model"), check)


def _kept_figures() -> Format:
    """The kept results of a table, and a preset of priors."""
    line = json.loads(_finished_run()["run/result.json"])
    text = {"table": "thesis-3.11", "budget": "small", "floors": {"toy-m1": {"mse": 1.0}}, "runs": [line]}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "priors.json"
        save_priors({"embedding*": WeightPrior("student", 0.5, 3.0), "*": WeightPrior("gaussian", 1.0)}, path)
        files = {"table.json": json.dumps(text).encode(), "priors.json": path.read_bytes()}

    def load(folder: Path) -> Any:
        found = kept_results.read(folder / "table.json")
        return found.by_name, load_priors(folder / "priors.json")

    def check(loaded: Any) -> None:
        runs, priors = loaded
        expect(all(isinstance(each["metrics"], dict) for each in runs.values()), "a run without metrics")
        expect(all(isinstance(prior, WeightPrior) for prior in priors.values()), "no prior")

    return Format(files, dict.fromkeys(files, damaged_json), load, check)


SAVED_FORMATS: dict[str, Callable[[], Format]] = {
    "run": _run,
    "checkpoint": _checkpoint,
    "saved model": _saved_model,
    "kept figures": _kept_figures,
}
