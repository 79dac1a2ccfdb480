"""Shapes are checked in every call of the library while the tests run; every test starts from the same seed, and leaves no process."""

import gc
from collections.abc import Iterator
from pathlib import Path

import jaxtyping
import pytest
import torch

from helpers.processes import children, left_behind

SOURCE = Path(__file__).parents[1] / "src"


def modules_with_shapes() -> list[str]:
    """The modules whose signatures have shapes. A checked call costs 0.2 ms: where there is none to check, that is for nothing."""
    files = (file for file in SOURCE.rglob("*.py") if "bayesattn.support.annotations import" in file.read_text())
    return [".".join(file.relative_to(SOURCE).with_suffix("").parts) for file in files]


jaxtyping.install_import_hook(modules_with_shapes(), "beartype.beartype")
torch.set_num_threads(1)  # two test processes share two cores


gc.disable()  # until all is collected: it would find nothing


def pytest_collection_finish() -> None:
    """What the collection made is there to the end. Walked again in each of thousands of collections, it took a third of the time."""
    gc.enable()
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish() -> None:
    """Else compiled libraries call leaked what they still hold, and hypothesis does not find who refers to what."""
    gc.unfreeze()


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _no_process_is_left() -> Iterator[None]:
    before = children()
    yield
    left = left_behind(before)
    assert left == [], f"the test left processes behind: {left}"


@pytest.fixture
def unchecked() -> Iterator[None]:
    """Without the shape checks, as for a user: for tests of our own messages about bad arguments."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
