"""Hypothesis strategies that damage a valid file: its bytes, its lines and cells, or the values of its JSON."""

from __future__ import annotations

import copy
import io
import json
import re
import zipfile
from collections.abc import Callable
from typing import Any

import numpy
from hypothesis import strategies as st

Draw = Callable[[st.SearchStrategy[Any]], Any]

ODD_BYTES = (
    b"\x00",
    b"\xff" * 4,
    b"\x7f\xff\xff\xff",
    b"\xed\xa0\x80",
    "\u2028".encode(),
    b"\r",
    b"\n",
    b"\t",
    b"\x1f\x8b",
)
"""Ends of strings, largest numbers, half of a surrogate pair, separators that some take for ends of lines, gzip's mark."""
ODD_CELLS = ("", " ", "-1", "0", "1e999", "nan", "inf", "9" * 30, "9" * 5000, "٣", "1_0", "true", "\ufeff", "_")
DEEP = 100_000


@st.composite
def damaged_bytes(draw: Draw, valid: bytes) -> bytes:
    """One to three wounds; seldom, something else altogether."""
    if draw(st.integers(0, 19)) == 0:
        return draw(st.binary(max_size=200))
    content = valid
    for _ in range(draw(st.integers(1, 3))):
        content = _wounded(draw, content)
    return content


def _wounded(draw: Draw, content: bytes) -> bytes:
    start, stop = sorted((draw(st.integers(0, len(content))), draw(st.integers(0, len(content)))))
    match draw(st.sampled_from(("cut", "flip", "flip", "insert", "remove", "repeat", "swap", "overwrite"))):
        case "cut":
            return content[:start]
        case "flip":
            return content[:start] + bytes([draw(st.integers(0, 255))]) + content[start + 1 :]
        case "insert":
            return content[:start] + draw(st.sampled_from(ODD_BYTES)) + content[start:]
        case "remove":
            return content[:start] + content[stop:]
        case "repeat":
            return content[:stop] + content[start:]
        case "swap":
            return content[stop:] + content[start:stop] + content[:start]
        case _:
            odd = draw(st.sampled_from(ODD_BYTES))
            return content[:start] + odd + content[start + len(odd) :]


@st.composite
def damaged_lines(draw: Draw, valid: bytes) -> bytes:
    """Lines missing, twice or elsewhere; cells that are odd, missing or too many; or damaged bytes."""
    if draw(st.integers(0, 2)) == 0:
        return draw(damaged_bytes(valid))
    lines = valid.decode().split("\n")
    for _ in range(draw(st.integers(1, 3))):
        at, other = draw(st.integers(0, len(lines) - 1)), draw(st.integers(0, len(lines) - 1))
        cells = re.split("([\t,])", lines[at])  # the separators are kept
        cell = draw(st.integers(0, len(cells) - 1))
        match draw(
            st.sampled_from(("drop line", "repeat line", "swap lines", "odd cell", "odd cell", "drop cell", "add"))
        ):
            case "drop line" if len(lines) > 1:
                del lines[at]
            case "repeat line":
                lines.insert(at, lines[other])
            case "swap lines":
                lines[at], lines[other] = lines[other], lines[at]
            case "odd cell":
                cells[cell] = draw(st.sampled_from(ODD_CELLS))
                lines[at] = "".join(cells)
            case "drop cell":
                lines[at] = "".join(cells[:cell] + cells[cell + 1 :])
            case _:
                lines[at] += "\t" + draw(st.sampled_from(ODD_CELLS))
    return "\n".join(lines).encode()


ODD_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 10**30, 1.5, float("nan"), float("inf"), -1e308),
    *("", "x", "\ud800", "é" * 300, [], {}, [[]], [None], {"class": "os.system"}, {"": {}}),
)


@st.composite
def damaged_json(draw: Draw, valid: bytes, spare: tuple[str, ...] = ()) -> bytes:
    """Values of other types and sizes, missing, added and repeated ones; or damaged bytes; or lists in lists in lists.

    Entries named in `spare` are left alone.
    """
    kind = draw(st.integers(0, 29))
    if kind == 0:
        return b"[" * DEEP
    if kind == 1:
        return b"[" + b"9" * 5000 + b"]"  # more digits than Python turns into a number
    if kind < 8:
        return draw(damaged_bytes(valid))
    content = {"root": json.loads(valid)}
    for _ in range(draw(st.integers(1, 3))):
        holder, key = _place(draw, content, spare)
        match draw(st.sampled_from(("replace", "replace", "drop", "repeat", "add"))):
            case "drop" if holder is not content:
                del holder[key]
            case "repeat" if isinstance(holder, list):
                holder.insert(key, copy.deepcopy(holder[key]))
            case "add" if isinstance(holder, dict) and holder is not content:
                holder[draw(st.sampled_from(("", "class", "extra")))] = copy.deepcopy(draw(st.sampled_from(ODD_VALUES)))
            case _:
                holder[key] = copy.deepcopy(draw(st.sampled_from(ODD_VALUES)))
    return json.dumps(content["root"]).encode()


def _place(draw: Draw, content: dict[str, Any], spare: tuple[str, ...]) -> tuple[Any, Any]:
    """A random entry below the root: what holds it, and its key."""
    holder, key = content, "root"
    while isinstance(holder[key], dict | list) and holder[key] and draw(st.integers(0, 5)):
        inside = holder[key]
        keys = [k for k in inside if k not in spare] if isinstance(inside, dict) else range(len(inside))
        if not keys:
            break
        holder, key = inside, draw(st.sampled_from(keys))
    return holder, key


@st.composite
def damaged_safetensors(draw: Draw, valid: bytes) -> bytes:
    """A header that says something else than the bytes hold; or damaged bytes."""
    if draw(st.booleans()):
        return draw(damaged_bytes(valid))
    length = int.from_bytes(valid[:8], "little")
    header = draw(damaged_json(valid[8 : 8 + length]))
    return len(header).to_bytes(8, "little") + header + valid[8 + length :]


@st.composite
def damaged_zip(draw: Draw, valid: bytes, inside: Callable[[bytes], st.SearchStrategy[bytes]] = damaged_bytes) -> bytes:
    """An archive whose checksums are right and of which one member is damaged; or damaged bytes."""
    if draw(st.integers(0, 3)) == 0:
        return draw(damaged_bytes(valid))
    with zipfile.ZipFile(io.BytesIO(valid)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    chosen = draw(st.sampled_from(sorted(members)))
    members[chosen] = draw(inside(members[chosen]))
    return zipped(members)


def zipped(members: dict[str, bytes]) -> bytes:
    """An archive, not compressed, as numpy and torch write them."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name), content)
    return buffer.getvalue()


@st.composite
def damaged_arrays(draw: Draw, valid: bytes) -> bytes:
    """An archive of numpy arrays of which one is of another type or shape, or not finite; or a damaged archive."""
    if draw(st.booleans()):
        return draw(damaged_zip(valid))
    with numpy.load(io.BytesIO(valid)) as archive:
        arrays = {name: archive[name] for name in archive.files}
    chosen = draw(st.sampled_from(sorted(arrays)))
    array = arrays[chosen]
    odd: dict[str, Callable[[], Any]] = {
        "bytes reversed": lambda: array.astype(array.dtype.newbyteorder(">")),
        "complex": lambda: numpy.zeros(array.shape, numpy.complex64),
        "objects": lambda: numpy.full(array.shape, None, dtype=object),
        "text": lambda: numpy.full(array.shape, "x"),
        "booleans": lambda: numpy.ones(array.shape, numpy.bool_),
        "records": lambda: numpy.zeros(array.shape, [("a", "<f4"), ("b", "<i2")]),
        "not finite": lambda: numpy.full(array.shape, numpy.nan, numpy.float32),
        "huge": lambda: numpy.full(array.shape, 1e300),
        "dates": lambda: numpy.zeros(array.shape, "datetime64[s]"),
        "nothing": lambda: array[:0],
        "no regions": lambda: array[:, :0] if array.ndim > 1 else array[:0],
        "one value": lambda: array.ravel()[0],
        "one dimension more": lambda: array[None],
        "one dimension less": lambda: array[0],
        "one less": lambda: array[:-1],
        "the first twice": lambda: numpy.concatenate([array[:1], array[:-1]]),
    }
    arrays[chosen] = odd[draw(st.sampled_from(sorted(odd)))]()
    buffer = io.BytesIO()
    numpy.savez(buffer, **arrays)  # pyright: ignore[reportArgumentType]
    return buffer.getvalue()


@st.composite
def damaged_pickle(draw: Draw, valid: bytes, attack: bytes) -> bytes:
    """Damaged bytes; code to run put in front, behind or between; or a forged array of few bytes in place of all."""
    if draw(st.integers(0, 7)) == 0:
        shape = b"I%d\n" % draw(st.sampled_from((0, 1, 10**9, 2**62)))
        code = draw(st.sampled_from((b"f4", b"i8", b"O8", b"V8", b"U9")))
        made = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(" + shape + b"tS'b'\ntR"
        return made + b"(I1\n(" + shape + b"I2\ntcnumpy\ndtype\n(S'" + code + b"'\nI0\nI1\ntRI00\nS'AAAAAAAA'\ntb."
    content = draw(damaged_bytes(valid)) if draw(st.booleans()) else valid
    if draw(st.integers(0, 3)) == 0:
        at = draw(st.sampled_from((0, 2, max(0, len(content) - 1))) | st.integers(0, len(content)))
        content = content[:at] + attack + content[at:]
    return content
