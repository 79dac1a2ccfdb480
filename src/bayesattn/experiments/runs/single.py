"""One run, from its config to its result."""

from __future__ import annotations

import datetime
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import bayesattn
from bayesattn.experiments.methods import Method
from bayesattn.experiments.runs.checkpoints import Checkpoints, never
from bayesattn.experiments.runs.config import RunConfig
from bayesattn.experiments.runs.folder import RunFolder
from bayesattn.experiments.runs.precision import denormals_are_zero
from bayesattn.experiments.runs.training import Fitted, OnEpoch, Trainer, seed_of, share
from bayesattn.experiments.tasks import Splits, Task


def run(
    config: RunConfig,
    parent: Path,
    *,
    checkpoint_seconds: float = 10.0,
    on_epoch: OnEpoch = lambda line: None,
    stop_if: Callable[[], bool] = never,
) -> dict[str, Any]:
    """The result of this config: read if the run has finished, else computed, going on from its last checkpoint.

    `stop_if` is asked after every batch: if it says so, the run keeps where it stands and raises `Interrupted`. Under `accelerate launch`
    every process calls this; the first one writes.
    """
    folder = RunFolder.of(parent, config)
    checkpoints = Checkpoints(folder, checkpoint_seconds, stop_if)
    # told that there are only processors, accelerate also joins several processes of a launch without a GPU
    accelerator = Accelerator(cpu=not torch.accelerator.is_available())
    with folder.locked(accelerator.is_main_process, _what_the_first_says), denormals_are_zero():
        return _computed(config, folder, accelerator, checkpoints, on_epoch)


def _what_the_first_says(answer: bool) -> bool:
    """In all processes of a launch."""
    return broadcast_object_list([answer])[0]


def _computed(
    config: RunConfig, folder: RunFolder, accelerator: Accelerator, checkpoints: Checkpoints, on_epoch: OnEpoch
) -> dict[str, Any]:
    finished = folder.result()
    accelerator.wait_for_everyone()
    if finished is not None:
        if accelerator.is_main_process:
            folder.remove_checkpoint()
        return finished
    trainer = Trainer(config, folder, accelerator, checkpoints, on_epoch)
    splits = trainer.task.load()  # before anything is written: missing data leaves no folder behind that looks started
    if accelerator.is_main_process:
        folder.write_config(config)
    fitted = trainer.fit(splits)
    if accelerator.is_main_process:
        result = _evaluated(config, trainer.task, trainer.method, fitted, splits, accelerator.device)
        result["processes"] = accelerator.num_processes
        result["validation_nll"] = [line["validation_nll"] for line in folder.history() if line["member"] == 0]
        folder.write_result(result, _tensors(fitted.models))
    accelerator.wait_for_everyone()
    finished = folder.result()
    assert finished is not None
    return finished


def _evaluated(
    config: RunConfig, task: Task, method: Method, fitted: Fitted, splits: Splits, device: torch.device
) -> dict[str, Any]:
    start = time.process_time()
    evaluation = task.evaluate(_Predictor(config, task, method, fitted.models, device), splits)
    return {
        "config": config.to_json(),
        "metrics": evaluation.metrics,
        "details": evaluation.details,
        "train_seconds": round(fitted.seconds, 3),
        "seconds_per_step": fitted.seconds_per_step,
        "evaluate_seconds": round(time.process_time() - start, 3),
        "parameters": sum(parameter.numel() for model in fitted.models for parameter in model.parameters()),
        "commit": commit(),
        "first_model_taken_over": fitted.taken_over,
        "version": bayesattn.__version__,
        "torch": torch.__version__,
        "finished": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


class _Predictor:
    """Predictions of the fitted models; the noise of the n-th call is decided by the run's seed and n."""

    def __init__(self, config: RunConfig, task: Task, method: Method, models: list[nn.Module], device: torch.device):
        self.config = config
        self.task = task
        self.method = method
        self.models = models
        self.device = device
        self.calls = 0

    def __call__(self, inputs: Any, point_estimate: bool = False) -> Any:
        inputs = pytree.tree_map_only(Tensor, lambda tensor: tensor.to(self.device), inputs)
        if point_estimate:
            return self.method.point_estimate(self.models, self.task, inputs)
        torch.manual_seed(seed_of(self.config.seed, "evaluation", self.calls))
        self.calls += 1
        return self.method.predict(self.models, self.task, inputs, self.config.training.samples)


@dataclass(frozen=True)
class LoadedRun:
    """A finished run, ready to predict."""

    config: RunConfig
    result: dict[str, Any]
    task: Task
    method: Method
    models: list[nn.Module]

    def predict(self, inputs: Any, samples: int | None = None) -> Any:
        """What the fitted models predict; by default with as many samples as in the run's evaluation."""
        return self.method.predict(self.models, self.task, inputs, samples or self.config.training.samples)


def load_run(path: Path) -> LoadedRun:
    """The finished run in the folder `path`."""
    folder = RunFolder(path)
    result = folder.result()
    if result is None:
        raise FileNotFoundError(f"{path} holds no finished run: result.json is missing. Start it with `bayesattn run`.")
    config = _config_of(result, folder)
    task, method = config.make_task(), config.make_method()
    tensors = folder.read_model()
    models = []
    for member in range(method.members):
        model = method.build(task)
        prefix = f"{member}."
        weights = {key[len(prefix) :]: value for key, value in tensors.items() if key.startswith(prefix)}
        try:
            model.load_state_dict(weights)
        except RuntimeError as problem:
            raise ValueError(f"{path}/model.safetensors is not the model of this run: {str(problem)[:500]}") from None
        if method.finishes:
            method.finish(model, task, share(task.load().train, config.training.train_share))
        models.append(model.eval())
    return LoadedRun(config, result, task, method, models)


def _config_of(result: dict[str, Any], folder: RunFolder) -> RunConfig:
    """What was run. Two files say it, so that a change to one of them is noticed before a model is made from it."""
    said = folder.config()
    if said is not None and said != result.get("config"):
        raise ValueError(
            f"{folder.path}: config.json and result.json describe different runs; one was changed. Run it again."
        )
    try:
        return RunConfig.from_json(result["config"])
    except (AttributeError, KeyError, TypeError, ValueError) as problem:
        raise ValueError(
            f"{folder.path}/result.json does not describe a run of this version ({type(problem).__name__}: {problem})."
        ) from None


SOURCE = Path(__file__).resolve().parents[2]


def commit(source: Path = SOURCE) -> str:
    """The commit of this code, marked if its files differ from it; "unknown" outside a repository.

    Other files may differ: results are written while runs go on.
    """
    try:
        head = _git(source, "rev-parse", "--short=12", "HEAD")
        if head.returncode != 0:
            return "unknown"
        same = _git(source, "diff", "--quiet", "HEAD", "--", ".").returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    return head.stdout.strip() if same else f"{head.stdout.strip()}-dirty"


def _git(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, timeout=10)


def _tensors(models: list[nn.Module]) -> dict[str, Tensor]:
    """The members' state dicts as one, each under its number."""
    return {
        f"{member}.{key}": value.detach().cpu().contiguous()
        for member, model in enumerate(models)
        for key, value in model.state_dict().items()
    }
