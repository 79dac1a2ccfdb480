"""Small data files in place of the real ones."""

from __future__ import annotations

import gzip
import hashlib
import pickle
import struct
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from bayesattn.experiments.data.files import DataFile


def put(folder: Path, file: DataFile, content: bytes) -> DataFile:
    """Write `content`, packed, as `file`; the file with the checksum of it."""
    path = folder / f"{file.path}.gz"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content))
    return replace(file, sha256=hashlib.sha256(content).hexdigest(), url=None)


def idx(values: Tensor) -> bytes:
    """Bytes as an idx file."""
    sizes = struct.pack(f">{values.dim()}I", *values.shape)
    return bytes([0, 0, 8, values.dim()]) + sizes + bytes(values.flatten().tolist())


def conllu(sentences: list[list[tuple[str, str, str]]]) -> bytes:
    """Sentences of (form, lemma, tag) as CoNLL-U."""
    blocks = []
    for number, words in enumerate(sentences):
        lines = [f"# sent_id = {number}"]
        lines += [f"{i}\t{form}\t{lemma}\t{tag}\t_\t_\t0\troot\t_\t_" for i, (form, lemma, tag) in enumerate(words, 1)]
        blocks.append("\n".join(lines) + "\n\n")
    return "".join(blocks).encode()


def images(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Images of ten classes that are easy to tell: class c has a bright band at row 2c + 4."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 10
    pixels = torch.randint(0, 40, (count, 28, 28), generator=generator)
    for image, label in zip(pixels, labels.tolist(), strict=True):
        image[2 * label + 4 : 2 * label + 6] = 255
    return pixels.to(torch.uint8), labels.to(torch.uint8)


def planetoid() -> dict[str, bytes]:
    """The parts of a graph of 508 nodes: 4 to train, 500 to validate, 3 of the last 4 to test."""
    generator = np.random.default_rng(0)
    x = (generator.random((504, 6)) < 0.5).astype(np.float32)
    tx = np.eye(3, 6, dtype=np.float32)
    neighbours: dict[int, list[int]] = defaultdict(list, {0: [1, 1, 507], 1: [0], 507: [0, 507]})
    values: dict[str, Any] = {
        "allx": sparse.csr_matrix(x),
        "ally": np.eye(2, dtype=np.int32)[np.arange(504) % 2],
        "tx": sparse.csr_matrix(tx),
        "ty": np.array([[0, 1], [0, 1], [1, 0]], np.int32),
        "y": np.eye(2, dtype=np.int32)[np.arange(4) % 2],
        "graph": neighbours,
    }
    return {part: pickle.dumps(value, protocol=4) for part, value in values.items()} | {
        "test.index": b"507\n504\n506\n"
    }
