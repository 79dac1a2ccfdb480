"""Files of region features: one archive for all images, and the published formats of bottom-up attention.

    features.npz    arrays `regions` [images, regions, features] and `image_ids`
    *.tsv           bottom-up attention (Anderson et al. 2018): image_id, image_w, image_h, num_boxes, boxes, features, the last two
                    as base64 of float32
    a folder        of one .npz for each image, as MCAN's code has them (array `x`, [features, regions]) or the captioning
                    code of Luo (array `feat`, [regions, features]); the id is the last number in the name

The published files have tens of gigabytes: they are packed once, as float16, into a file of the cache, which is then mapped.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import io
import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy
import torch

from bayesattn.experiments.data.files import DataError, DataFile, read
from bayesattn.experiments.data.regions import Regions, from_blocks
from bayesattn.support.files import replacing, user_cache, write_atomically

Rows = Callable[[Path], Iterator[tuple[str, numpy.ndarray]]]
"""A file → its images, each as its id and [regions, features]."""

COLUMNS = ("image_id", "image_w", "image_h", "num_boxes", "boxes", "features")


def load_archive(file: DataFile) -> Regions:
    """All images' regions from one archive of the data folder."""
    content, path = read(file)
    return read_archive(content, path)


def load_regions(path: Path) -> Regions:
    """The regions in a file or folder of any of the formats."""
    if path.is_dir():
        files = sorted(path.glob("*.tsv"))
        if files:
            return _packed(files, _tsv_rows)
        files = sorted(path.rglob("*.npz"))
        if files:
            return _packed(files, _archive_rows)
        raise DataError(f"{path} holds no features: there must be .tsv files of bottom-up attention, or .npz files.")
    if not path.exists():
        raise DataError(f"{path} was not found: it should hold the features of the images.")
    return _packed([path], _tsv_rows) if path.suffix == ".tsv" else read_archive(path.read_bytes(), path)


def read_archive(content: bytes, path: Path) -> Regions:
    """The regions of an archive with `regions` and `image_ids`."""
    arrays = read_arrays(content, path, ("regions", "image_ids"))
    regions, ids = arrays["regions"], arrays["image_ids"]
    if ids.ndim != 1 or ids.dtype.kind not in "iuU" or not len(ids):
        raise DataError(f"{path}: image_ids must be a list of text or whole numbers, not {ids.dtype} {ids.shape}.")
    if regions.ndim != 3 or len(regions) != len(ids):
        raise DataError(
            f"{path}: regions {regions.shape} must be [images, regions, features], with as many images as image_ids ({len(ids)})."
        )
    names = _names(ids, path)
    _check_ids(names, path)
    if regions.size == 0:
        raise DataError(f"{path}: image {names[0]} has no regions.")
    return from_blocks(list(torch.from_numpy(_numbers(regions, path))), names, str(path))


def _tsv_rows(path: Path) -> Iterator[tuple[str, numpy.ndarray]]:
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            fields = line.rstrip(b"\r\n").split(b"\t")
            where = f"{path}, line {number}"
            if len(fields) != len(COLUMNS):
                raise DataError(
                    f"{where} has {len(fields)} columns in place of the {len(COLUMNS)} of bottom-up attention ({', '.join(COLUMNS)})."
                )
            try:
                name, count = str(int(fields[0])), int(fields[3])
            except ValueError:
                raise DataError(
                    f"{where}: image_id {fields[0][:20]!r} and num_boxes {fields[3][:20]!r} must be whole numbers."
                ) from None
            if count == 0:
                raise DataError(f"{where}: image {name} has no regions.")
            try:
                raw = base64.b64decode(fields[5], validate=True)
            except binascii.Error as problem:
                raise DataError(f"{where}: the features of image {name} are not base64 ({problem}).") from None
            if count < 0 or not raw or len(raw) % (4 * count):
                raise DataError(
                    f"{where}: image {name} has {len(raw)} bytes of features, which are not {count} regions of float32."
                )
            yield name, numpy.frombuffer(raw, dtype="<f4").reshape(count, -1)


def _archive_rows(path: Path) -> Iterator[tuple[str, numpy.ndarray]]:
    arrays = read_arrays(path.read_bytes(), path, ())
    if "x" in arrays:
        block = arrays["x"].T
    elif "feat" in arrays:
        block = numpy.atleast_2d(arrays["feat"])
        block = block.reshape(-1, block.shape[-1]) if block.size else block
    else:
        raise DataError(f"{path} has the arrays {sorted(arrays)}: there must be 'x' (as MCAN has it) or 'feat' (Luo).")
    numbers = re.findall(r"\d+", path.name)
    if not numbers:
        raise DataError(f"{path}: there is no number in the name, which should end in the image's id.")
    name = str(int(numbers[-1]))
    if block.ndim != 2 or block.size == 0:
        raise DataError(f"{path}: image {name} has no regions (features of shape {block.shape}).")
    yield name, _numbers(block, path).astype("<f4")


def _packed(files: Sequence[Path], rows_of: Rows) -> Regions:
    """The rows of all files from the cache, where they are put if they are not there yet."""
    source = str(files[0]) if len(files) == 1 else str(files[0].parent)
    described = [(str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    digest = hashlib.sha256(json.dumps(described).encode()).hexdigest()[:20]
    values, index = (user_cache() / "regions" / f"{digest}.{kind}" for kind in ("float16", "json"))
    if not index.exists():
        _pack(files, rows_of, values, index)
    known = json.loads(index.read_text())
    size = known["offsets"][-1] * known["features"]
    mapped = torch.from_file(str(values), shared=False, size=size, dtype=torch.float16)
    return Regions(mapped.view(-1, known["features"]), torch.tensor(known["offsets"]), tuple(known["ids"]), source)


def _pack(files: Sequence[Path], rows_of: Rows, values: Path, index: Path) -> None:
    """Write the rows as they come, and what they are when all of them are there."""
    ids: list[str] = []
    offsets, features = [0], None
    with replacing(values) as unfinished:
        with unfinished.open("wb") as target:
            for file in files:
                for name, block in rows_of(file):
                    features = block.shape[1] if features is None else features
                    if block.shape[1] != features:
                        raise DataError(
                            f"{file}: image {name} has {block.shape[1]} features, those before it {features}."
                        )
                    if not numpy.isfinite(block).all():
                        raise DataError(f"{file}: the features of image {name} are not all finite.")
                    ids.append(name)
                    offsets.append(offsets[-1] + len(block))
                    target.write(block.clip(-65504, 65504).astype("<f2").tobytes())
        if features is None:
            raise DataError(f"{files[0]} is empty: it should hold the features of the images.")
        _check_ids(ids, files[0] if len(files) == 1 else files[0].parent)
    write_atomically(index, json.dumps({"features": features, "offsets": offsets, "ids": ids}))


def read_arrays(content: bytes, path: Path, wanted: tuple[str, ...]) -> dict[str, numpy.ndarray]:
    """The arrays of an archive, at least those that are wanted."""
    try:
        with numpy.load(io.BytesIO(content)) as archive:
            arrays = {name: archive[name] for name in (wanted or archive.files)}
    except KeyError as problem:
        raise DataError(f"{path} lacks an array: {problem.args[0]}. There must be {' and '.join(wanted)}.") from None
    except Exception as problem:  # a damaged archive may raise anything
        words = str(problem).partition("\n")[0][:200] or type(problem).__name__
        raise DataError(f"{path} is damaged: it is not an archive of numpy arrays ({words}).") from None
    for name, array in arrays.items():
        if not isinstance(array, numpy.ndarray):  # numpy gives bytes for what it does not know
            raise DataError(f"{path} is damaged: {name!r} is not a numpy array.")
    return arrays


def _names(ids: numpy.ndarray, path: Path) -> list[str]:
    try:
        names = [str(name) for name in ids]
        "".join(names).encode()
    except (SystemError, UnicodeEncodeError) as problem:  # SystemError: numpy on numbers that are no characters
        raise DataError(f"{path}: image_ids are not text ({problem}).") from None
    return names


def _numbers(array: numpy.ndarray, path: Path) -> numpy.ndarray:
    """Features in the byte order of this machine."""
    if array.dtype.kind != "f":
        raise DataError(f"{path}: features must be floating-point numbers, not {array.dtype}.")
    largest = numpy.finfo(numpy.float32).max
    if not ((array >= -largest) & (array <= largest)).all():
        raise DataError(f"{path}: the features are not all finite in single precision.")
    return array.astype(array.dtype.newbyteorder("="))


def _check_ids(ids: Sequence[str], path: Path) -> None:
    seen: set[str] = set()
    for name in ids:
        if name in seen:
            raise DataError(f"{path}: image {name} is there twice.")
        seen.add(name)
