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


def test_a_few_bytes_cannot_ask_for_gigabytes(write: Any) -> None:
    bomb = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I1000000000\ntS'b'\ntR."
    write(contents() | {"y": bomb})
    with pytest.raises(DataError, match=r"ind.cora.y is refused: it wants to make room for an array of shape \(10000"):
        load_planetoid("cora")
    bare = b"cnumpy\nndarray\n((I1000000000\ntS'f8'\ntR."
    write(contents() | {"y": bare})
    with pytest.raises(DataError, match=r"ind.cora.y is refused"):
        load_planetoid("cora")
    write(contents() | {"y": b"\x80\x05\x96" + (8 << 30).to_bytes(8, "little") + b"."})
    with pytest.raises(DataError, match=r"ind.cora.y is refused"):
        load_planetoid("cora")


@pytest.mark.parametrize(
    "dtype",
    [
        b"cnumpy\ndtype\n(S'O8'\nI0\nI1\ntR",
        b"cnumpy\ndtype\n(S'V8'\nI0\nI1\ntR",
        b"cnumpy\ndtype\n(S'f4'\nI0\nI1\ntR(I3\nS'<'\n(S'O8'\n(I1\nttNNI-1\nI-1\nI0\ntb",
    ],
    ids=["pointers", "raw bytes", "made of others"],
)
def test_a_forged_type_of_numbers_is_refused(dtype: bytes, write: Any) -> None:
    """Eight bytes of the file would be taken for the address of an object."""
    array = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntS'b'\ntR"
    forged = array + b"(I1\n(I1\nI1\nt" + dtype + b"I00\nS'AAAAAAAA'\ntb."
    write(contents() | {"y": forged})
    with pytest.raises(DataError, match=r"ind.cora.y is refused: .*(which are none|made of other types)"):
        load_planetoid("cora")


def test_an_array_has_as_many_bytes_as_it_says(write: Any) -> None:
    content = pickle.dumps(np.ones((4, 2), np.int32), protocol=4)
    assert content.count(b"K\x04K\x02\x86") == 1
    write(contents() | {"y": content.replace(b"K\x04K\x02\x86", b"K\x44K\x02\x86")})
    with pytest.raises(DataError, match=r"ind.cora.y is refused: its shape is \(68, 2\), and it has 32 bytes"):
        load_planetoid("cora")


def test_a_sparse_matrix_is_no_larger_than_its_file_allows(write: Any) -> None:
    bad = sparse.csr_matrix(np.eye(3, 6, dtype=np.float32))
    bad._shape = (3, 300_000_000)
    write(contents() | {"tx": pickle.dumps(bad, protocol=4)})
    with pytest.raises(DataError, match=r"ind.cora.tx holds no sparse matrix \(its shape is 3 x 300000000\)"):
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


@pytest.mark.parametrize("content", [b"\x8c\x05\xed\xa0\x80py\x8c\x01x\x93.", b"F" + b"\x01" * 2_000 + b"\n."])
def test_a_message_that_quotes_the_file_is_short_and_can_be_printed(write: Any, content: bytes) -> None:
    write({**contents(), "y": content})
    with pytest.raises(DataError, match=r"ind.cora.y is refused") as problem:
        load_planetoid("cora")
    message = str(problem.value)
    assert len(message) < 700
    assert message.encode("utf-8").isascii() or "…" in message
