"""docs/scale.md is what its command writes, and its arithmetic is that of published models."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def scale() -> Iterator[Any]:
    found = importlib.util.spec_from_file_location("scale", ROOT / "benchmarks/scale.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "scale", module)  # its dataclasses look themselves up
        found.loader.exec_module(module)
        yield module


def test_the_page_is_what_the_command_writes(scale: Any) -> None:
    assert (ROOT / "docs/scale.md").read_text() == scale.page(), "run `python benchmarks/scale.py`"


def test_models_have_the_parameters_that_their_papers_print(scale: Any) -> None:
    billions = [model.parameters / 1e9 for model in scale.MODELS]
    assert billions == pytest.approx([0.124, 1.236, 6.738, 68.98], rel=0.01)


def test_noise_and_products_are_equal_where_it_says(scale: Any) -> None:
    for machine in scale.MACHINES:
        for model in scale.MODELS:
            length = scale.length_of_equal_noise(model, machine)
            if length is None:
                assert scale.noise_share(model, machine, 10**9) < 1.0
            else:
                assert scale.noise_share(model, machine, length) == pytest.approx(1.0)


def test_caches_take_as_long_as_weights_where_it_says(scale: Any) -> None:
    model, machine = scale.MODELS[2], scale.MACHINES[2]
    samples = scale.samples_as_dear_as_weights(model)
    weights_alone = model.parameters * scale.BYTES / machine.bandwidth
    assert scale.decoding_seconds(model, machine, samples) == pytest.approx(2 * weights_alone)
