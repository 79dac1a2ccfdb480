"""The citation graphs, and the unpickler that reads them."""

from __future__ import annotations

import hashlib
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse

from bayesattn.experiments.data import planetoid
from bayesattn.experiments.data.files import DataError, locate
from bayesattn.experiments.data.planetoid import FILES, load_planetoid
from helpers.data_files import planetoid as contents


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Put these contents in place of Cora's files, with checksums that agree."""
    monkeypatch.setenv("BAYESATTN_DATA", str(tmp_path))

    def put(parts: dict[str, bytes]) -> None:
        (tmp_path / "planetoid").mkdir(exist_ok=True)
        files = {}
        for part, content in parts.items():
            (tmp_path / "planetoid" / f"ind.cora.{part}").write_bytes(content)
            files[part] = replace(FILES["cora"][part], sha256=hashlib.sha256(content).hexdigest(), url=None)
        monkeypatch.setitem(planetoid.FILES, "cora", files)
        load_planetoid.cache_clear()

    yield put
    load_planetoid.cache_clear()


def test_the_parts_are_put_together(write: Any) -> None:
    write(contents())
    graph = load_planetoid("cora")
    features = graph.features.to_dense()
    assert features.shape == (508, 6)
    assert torch.equal(graph.labels[[507, 504, 506]], torch.tensor([1, 1, 0]))  # in the order of test.index
    assert torch.equal(features[[507, 504, 506]], torch.eye(3, 6))
    assert features[505].sum() == 0  # an isolated test node, as in CiteSeer
    sums = features.sum(1)
    torch.testing.assert_close(sums[sums > 0], torch.ones(int((sums > 0).sum())))
    assert (len(graph.train), len(graph.validation), graph.test.tolist()) == (4, 500, [504, 506, 507])
    pairs = {tuple(pair) for pair in graph.edges.T.tolist()}
    assert len(pairs) == graph.edges.shape[1] == 508 + 4
    assert pairs - {(node, node) for node in range(508)} == {(0, 1), (1, 0), (0, 507), (507, 0)}


class Malicious:
    """Unpickled by the ordinary unpickler, it writes a file."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self) -> Any:
        return (Path.write_text, (self.path, "gotcha"))


@pytest.mark.parametrize("part", ["allx", "ty", "graph"])
def test_a_malicious_pickle_is_refused_and_does_nothing(part: str, write: Any, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    attack = pickle.dumps(Malicious(victim), protocol=2)
    write(contents() | {part: attack})
    with pytest.raises(DataError, match=rf"ind.cora.{part} is refused: it wants .*could run code"):
        load_planetoid("cora")
    assert not victim.exists()
    pickle.loads(attack)  # the attack is a real one
    assert victim.exists()


@pytest.mark.parametrize(
    ("module", "name"),
    [("builtins", "eval"), ("os", "system"), ("numpy", "load"), ("numpy.testing._private.utils", "runstring")],
)
def test_other_names_are_refused_numpys_too(module: str, name: str, write: Any) -> None:
    write(contents() | {"y": f"c{module}\n{name}\n(S'1'\ntR.".encode()})
    with pytest.raises(DataError, match=rf"ind.cora.y is refused: it wants {module}.{name}"):
        load_planetoid("cora")


@pytest.mark.parametrize(
    ("part", "content", "message"),
    [
        ("allx", contents()["allx"][:200], r"ind.cora.allx is refused: .*Get it from https://github.com/kimiyoung"),
        ("ally", pickle.dumps([1, 2]), "ind.cora.ally holds no matrix of numbers"),
        ("tx", contents()["ty"], "ind.cora.tx holds no sparse matrix"),
        ("graph", pickle.dumps({0: 1}), "ind.cora.graph holds no lists of neighbours"),
        ("test.index", b"504\nx\n", "ind.cora.test.index holds something else than node numbers"),
        ("ty", contents()["y"], "do not belong together"),
        ("test.index", b"", "ind.cora.test.index holds something else than node numbers"),
        ("test.index", b"504\n-1\n506\n", "ind.cora.test.index holds something else than node numbers"),
        ("test.index", b"504\n504\n506\n", "ind.cora.test.index holds something else .*twice"),
        ("test.index", b"504\n505\n900000000000\n", "do not belong together"),
        ("test.index", b"9" * 30, "ind.cora.test.index holds something else than node numbers"),
        ("graph", pickle.dumps({0: [508]}), "do not belong together"),
        ("graph", pickle.dumps({0: ["1"]}), "ind.cora.graph holds no lists of neighbours"),
        ("graph", pickle.dumps({-1: [0]}), "ind.cora.graph holds no lists of neighbours"),
        ("y", pickle.dumps(np.ones((9, 2), np.int32)), "do not belong together"),
        ("ty", pickle.dumps(np.full((3, 2), np.nan)), "ind.cora.ty holds numbers that are not finite"),
    ],
)
def test_damaged_files_are_named(part: str, content: bytes, message: str, write: Any) -> None:
    write(contents() | {part: content})
    with pytest.raises(DataError, match=message):
        load_planetoid("cora")


def test_a_matrix_that_points_outside_itself_is_refused(write: Any) -> None:
    bad = sparse.csr_matrix(np.eye(3, 6, dtype=np.float32))
    bad.indices = np.array([0, 1, 10_000], np.int32)
    write(contents() | {"tx": pickle.dumps(bad, protocol=4)})
    with pytest.raises(DataError, match=r"ind.cora.tx holds no sparse matrix"):
        load_planetoid("cora")


def test_a_matrix_too_large_for_any_memory_is_refused(write: Any) -> None:
    bad = sparse.csr_matrix(np.eye(3, 6, dtype=np.float32))
    bad._shape = (3, 10**12)
    write(contents() | {"tx": pickle.dumps(bad, protocol=4)})
    with pytest.raises(DataError, match=r"ind.cora.tx holds no sparse matrix \(its shape is 3 x 1000000000000\)"):
        load_planetoid("cora")


def test_a_pickle_that_fills_the_memory_is_refused(write: Any) -> None:
    """Python's unpickler makes room for as many remembered things as the greatest number says."""
    content = pickle.dumps([1.0], protocol=2)
    bomb = content[:3] + b"r\xff\xff\xff\x3f" + content[5:]  # remember the list as number 2^30 - 1
    write(contents() | {"graph": bomb})
    with pytest.raises(DataError, match=r"ind.cora.graph is refused: it wants to remember 1,073,741,823 things"):
        load_planetoid("cora")


SIZES = {
    "cora": (2708, 5278, 1433, 7, 140),
    "citeseer": (3327, 4552, 3703, 6, 120),
    "pubmed": (19717, 44324, 500, 3, 60),
}


@pytest.mark.parametrize("name", SIZES)
def test_the_real_files_have_the_published_sizes(name: str) -> None:
    if any(locate(file) is None for file in FILES[name].values()):
        pytest.skip(f"the files of {name} are not there")
    graph = load_planetoid(name)
    nodes, features = graph.features.shape
    links = (graph.edges.shape[1] - nodes) // 2
    assert (nodes, links, features, graph.classes, len(graph.train)) == SIZES[name]
    assert (len(graph.validation), len(graph.test)) == (500, 1000)
    counts = graph.labels[graph.train].bincount()
    assert (counts == 20).all()
    load_planetoid.cache_clear()
