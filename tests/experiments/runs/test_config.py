"""What is run: names, defaults, changes."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from bayesattn.experiments.methods import METHODS
from bayesattn.experiments.runs import RunConfig, configure
from bayesattn.experiments.tasks import TASKS

OLD_NAMES = {
    "attn-dirichlet": "toy-m3_attn-dirichlet_seed4_c9836ad57c",
    "bam-wc": "toy-m3_bam-wc_seed4_840c33b960",
}


@pytest.mark.parametrize("task", [entry.name for entry in TASKS])
@pytest.mark.parametrize("method", [entry.name for entry in METHODS])
def test_every_config_comes_back_from_json(task: str, method: str) -> None:
    config = configure(task, method, seed=3)
    assert RunConfig.from_json(json.loads(json.dumps(config.to_json()))) == config


def test_the_papers_budgets_are_the_defaults() -> None:
    budgets = {name: TASKS.create(name).training for name in ("toy-m1", "pos", "mnist")}
    assert {name: (each.epochs, each.samples) for name, each in budgets.items()} == {
        "toy-m1": (100, 30),
        "pos": (100, 10),
        "mnist": (150, 10),
    }


def test_any_change_is_another_run_and_none_is_the_same() -> None:
    config = configure("toy-m1", "attn-dirichlet")
    others = [
        replace(config, seed=1),
        replace(config, training=replace(config.training, epochs=99)),
        replace(config, task_options=replace(config.task_options, data_seed=1)),
        replace(config, method_options=replace(config.method_options, kl_weight=0.5)),
    ]
    names = {config.name, *(other.name for other in others)}
    assert len(names) == 5
    assert configure("toy-m1", "attn-dirichlet").name == config.name


def test_unknown_names_are_answered_with_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"task='toy-m9' is not known. Did you mean"):
        configure("toy-m9", "mle")
    with pytest.raises(ValueError, match=r"method='bam-xf' is not known. Did you mean 'bam-"):
        configure("toy-m1", "bam-xf")
    with pytest.raises(ValueError, match=r"option='epoch' is not known. Did you mean 'epochs'"):
        configure("toy-m1", "mle", training={"epoch": 3})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epochs": 0}, "epochs must be a whole number of at least 1, got 0"),
        ({"train_share": 1.5}, r"train_share must lie in \(0, 1\], got 1.5"),
        ({"learning_rate": -1.0}, "learning_rate must be a finite number above 0"),
    ],
)
def test_impossible_values_are_refused(changes: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        configure("toy-m1", "mle", training=changes)


def test_options_that_were_added_later_leave_older_runs_their_names() -> None:
    """The names of runs that were made before these options existed, as they are on disk."""
    assert configure("toy-m3", "attn-dirichlet", 4).name == OLD_NAMES["attn-dirichlet"]
    assert configure("toy-m3", "bam-wc", 4).name == OLD_NAMES["bam-wc"]
    changed = configure("toy-m3", "bam-wc", 4, method_options={"kl_sigmoid": 40.0})
    assert changed.name != OLD_NAMES["bam-wc"]
    assert configure("toy-m3", "mle", training={"patience": 3}).name != configure("toy-m3", "mle").name
