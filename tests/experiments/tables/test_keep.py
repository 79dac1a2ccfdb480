"""Table keep: every run that it orders can be made, and its rows share what they can."""

from __future__ import annotations

import pytest

from bayesattn.experiments.tables import TABLES
from bayesattn.experiments.tables.keep import BOUND, OUTSIDE

TABLE = TABLES["keep"]


@pytest.mark.parametrize("budget", ["paper", "small"])
def test_every_run_can_be_made(budget: str) -> None:
    configs = TABLE.configs(budget)
    for config in configs:
        task, method = config.make_task(), config.make_method()
        count = getattr(method, "count", 1) if config.method == "snapshot" else 1
        assert config.training.epochs % count == 0, "a cycle of the learning rate must end with an epoch"
        if config.method in ("ensemble", "laplace-head", "noise-after"):
            assert "mle" in method.first_trained_by(task)
    assert {config.task for config in configs} == set(OUTSIDE)
    assert not [config for config in configs if config.method == "packed" and config.task in ("clinc150", "cola")]
    assert {config.seed for config in TABLE.configs(budget, methods=[BOUND])} == set(range(5))


def test_an_ensemble_of_five_begins_with_those_of_three_and_two() -> None:
    (five,) = TABLE.configs("paper", tasks=["digits"], methods=["ensemble of 5"], seeds=1)
    smaller = [options.members for options in five.make_method().with_fewer_members()]
    assert smaller == [4, 3, 2]
