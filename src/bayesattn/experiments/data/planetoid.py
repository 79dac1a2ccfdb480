"""Cora, CiteSeer and PubMed: citation graphs with the public Planetoid split.

The raw files are pickles of Python 2, which array_pickles.py reads so that no file can run code.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bayesattn.experiments.data.array_pickles import read_pickle
from bayesattn.experiments.data.files import DataError, DataFile, read
from bayesattn.experiments.data.graph import Graph, sparse_rows, undirected
from bayesattn.support import checks

VALIDATION_NODES = 500
MOST_VALUES_FOR_A_BYTE = 100
"""Most values of a matrix are zeros that are not in its file. The real ones have up to 15 for a byte: one with many more is damaged,
and would fill the memory."""

_SHA256 = {
    "citeseer": {
        "allx": "2ac30345d95c9ec933a817ee0bdd6a5f077f8c184a20e696910192d534414668",
        "ally": "f704b2d986dde6c2669934de1f3ae5696a6cf9455c0f6b2646a2d135ea0a1c95",
        "graph": "d79a4ef9d3e7169aee8946145f6b7306e35bc79bffad26346cfb94e10e9912a7",
        "test.index": "2af990671580b6b2df5d158d1038f8292e30c9cd821b5453f399659b25b723d4",
        "tx": "539a8906a2da97628d212f2fdd668c109a8b3f0d36574b59e5d3fd5b5303da21",
        "ty": "55e5bd1ba1e733a04598753ad1a8d57957f4b8f89e74519f41f4f4938767e4ce",
        "y": "8ba87e515d8e3ee3cf52f6d2c5b86aa73f11ecad825a808455209ec26cd54924",
    },
    "cora": {
        "allx": "9419ba2f26f5c35243db64aba110e0f35a04851609e0dc5433450676ca6b8543",
        "ally": "2b998f5cc7fedc86e7f97ca2498f47a1ffc1462c29e2d578b23bf3f62b6e7d71",
        "graph": "58f13302f39dde8852dad6fe6d15b89b077b6d7f837626bce671ef80344b383d",
        "test.index": "297ce89af2b51a6a194181c7dbe1796c6a1cf9cd9349a88383b1b1e227867875",
        "tx": "b9afbaa4a400df991f6f02ef677e1e44da55ffc04801fd02f9e673987829226a",
        "ty": "41f5ac76596a1699cc33f53084a2419e92961c42bb75f36fc38e616d348532ad",
        "y": "94465c14eb53e04ca262198dcbb2521ee8af60fb3f3d546cd6ca24a511b0e7d1",
    },
    "pubmed": {
        "allx": "508e538e2abdccdd54c4d3e9f49d638b4af7107d85845f66ddea5a5152658b7e",
        "ally": "0c37bbe3b5014ec365e9d393cf4791925e5ed94fb194305d74f064a8d7b50f0e",
        "graph": "5b89f0036ca22909471f1e6558eb42fa06e0c730a577bde5b058b40638f81dc9",
        "test.index": "b101d421688bbaecbd82e8a18f1e282378d6830f3a37666f28ebc47f844341b5",
        "tx": "4eb5f5d0f30f26497eb0ac6ac9719d09c67e284f1ed0385c93f3ef27a671da3d",
        "ty": "ee2e0d4819d9fbcc403689c3bf2e49face401b605932f093bc58ab6461130fdd",
        "y": "e6c807633307a07ed659249006536a147c7999c797f11a2560752990181b41b3",
    },
}

FILES = {
    name: {
        part: DataFile(
            f"planetoid/ind.{name}.{part}",
            sha256,
            "https://github.com/kimiyoung/planetoid (folder data)",
            f"https://raw.githubusercontent.com/kimiyoung/planetoid/master/data/ind.{name}.{part}",
        )
        for part, sha256 in parts.items()
    }
    for name, parts in _SHA256.items()
}
"""Graph → part → file. The parts: `all` are nodes that may be trained on, `t` test nodes; x features, y one-hot classes."""


@lru_cache(maxsize=1)
def load_planetoid(name: str) -> Graph:
    """One of "cora", "citeseer", "pubmed". Features are scaled to sum to one in each node, as GAT does.

    The first nodes are trained on (20 of each class), the next 500 validate, 1,000 named ones test. Nodes of CiteSeer's test range
    that have no features get none; the test does not ask for them.
    """
    files = FILES[checks.one_of("name", name, FILES)]
    x, others = _matrix(files["allx"]), _matrix(files["tx"])
    y, of_others = _array(files["ally"]), _array(files["ty"])
    train, neighbours, test = len(_array(files["y"])), _neighbours(files["graph"]), _numbers(files["test.index"])
    nodes = int(test.max()) + 1
    pairs = [(source, target) for source, targets in neighbours.items() for target in targets]
    if (
        not len(x) == len(y) == int(test.min())
        or not len(others) == len(of_others) == len(test)
        or (x.shape[1], y.shape[1]) != (others.shape[1], of_others.shape[1])
        or train + VALIDATION_NODES > nodes
        or nodes > 2 * (len(x) + len(test))  # CiteSeer's test nodes have gaps, but not more gaps than nodes
        or any(max(pair) >= nodes for pair in pairs)
    ):
        raise DataError(f"The files ind.{name}.* do not belong together. {files['allx'].remedy()}")
    features = np.zeros((nodes, x.shape[1]), np.float32)
    classes = np.zeros((nodes, y.shape[1]), np.int64)
    features[: len(x)], classes[: len(y)] = x, y
    features[test], classes[test] = others, of_others
    features /= np.maximum(features.sum(1, keepdims=True), 1e-12)
    return Graph(
        features=torch.from_numpy(features).to_sparse_csr(),
        edges=undirected(torch.tensor(pairs).view(-1, 2), nodes),
        labels=torch.from_numpy(classes.argmax(1)),
        train=torch.arange(train),
        validation=torch.arange(train, train + VALIDATION_NODES),
        test=torch.from_numpy(np.sort(test)),
    )


def _unpickled(file: DataFile) -> tuple[Any, Path, int]:
    """What is in the file, its path, and its size."""
    content, path = read(file)
    try:
        return read_pickle(content), path, len(content)
    except Exception as problem:  # a damaged pickle may raise anything
        reason = str(problem).encode("ascii", "backslashreplace").decode()  # it may quote any bytes of the file
        reason = reason if len(reason) <= 200 else f"{reason[:200]} …"
        raise DataError(f"{path} is refused: {reason or type(problem).__name__}. {file.remedy()}") from None


def _array(file: DataFile) -> np.ndarray:
    found, path, _ = _unpickled(file)
    if not isinstance(found, np.ndarray) or found.ndim != 2 or found.dtype.kind not in "iuf" or found.size == 0:
        raise DataError(f"{path} holds no matrix of numbers. {file.remedy()}")
    if not np.isfinite(found).all():
        raise DataError(f"{path} holds numbers that are not finite. {file.remedy()}")
    return found


def _matrix(file: DataFile) -> np.ndarray:
    """A compressed sparse matrix, written out."""
    found, path, size = _unpickled(file)
    try:
        rows, columns = found.shape
        if rows < 1 or columns < 1 or rows * columns > MOST_VALUES_FOR_A_BYTE * size:
            raise ValueError(f"its shape is {rows} x {columns}")
        starts, places, values = (torch.from_numpy(part) for part in (found.starts, found.places, found.values))
        with sparse_rows():
            matrix = torch.sparse_csr_tensor(starts, places, values, (rows, columns), check_invariants=True)
        if not values.isfinite().all():
            raise ValueError("it has numbers that are not finite")
        return matrix.to_dense().numpy()
    except (AttributeError, TypeError, ValueError, OverflowError, RuntimeError) as problem:
        words = str(problem).partition("\n")[0]  # torch adds where in its own code it was
        raise DataError(f"{path} holds no sparse matrix ({words}). {file.remedy()}") from None


def _neighbours(file: DataFile) -> dict[int, list[int]]:
    found, path, _ = _unpickled(file)
    if not isinstance(found, dict) or not all(
        _is_node(source) and isinstance(targets, list) and all(map(_is_node, targets))
        for source, targets in found.items()
    ):
        raise DataError(f"{path} holds no lists of neighbours. {file.remedy()}")
    return found


def _is_node(value: object) -> bool:
    return isinstance(value, int) and value >= 0


def _numbers(file: DataFile) -> np.ndarray:
    content, path = read(file)
    try:
        numbers = np.array([int(line) for line in content.split()], np.int64)
        if not len(numbers) or numbers.min() < 0:
            raise ValueError("there are none, or negative ones")
        if len(np.unique(numbers)) != len(numbers):
            raise ValueError("one is there twice")
    except (ValueError, OverflowError) as problem:
        raise DataError(f"{path} holds something else than node numbers ({problem}). {file.remedy()}") from None
    return numbers


def files_of(name: str) -> tuple[DataFile, ...]:
    """What must be found for this graph."""
    return tuple(FILES[name].values())
