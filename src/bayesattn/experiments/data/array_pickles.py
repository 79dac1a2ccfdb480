"""Pickles of arrays, sparse matrices, dicts and lists, read without running any code of theirs.

A pickle is a program. Of its instructions only those that write down plain values are taken; of names only a few, each of which stands
for something of ours that remembers what the file says. Numpy never sees a state that a file made up, and nothing is larger than the file.
"""

from __future__ import annotations

import io
import math
import pickle
import pickletools
from collections import defaultdict
from typing import Any

import numpy as np

_CODES = """PROTO FRAME STOP MARK POP POP_MARK DUP NONE NEWTRUE NEWFALSE INT LONG LONG1 BININT BININT1 BININT2 FLOAT BINFLOAT
STRING BINSTRING SHORT_BINSTRING BINBYTES SHORT_BINBYTES UNICODE BINUNICODE SHORT_BINUNICODE
EMPTY_LIST APPEND APPENDS LIST EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 EMPTY_DICT DICT SETITEM SETITEMS
GET BINGET LONG_BINGET PUT BINPUT LONG_BINPUT MEMOIZE GLOBAL STACK_GLOBAL REDUCE NEWOBJ BUILD"""
_PLAIN_CODES = frozenset(_CODES.split())
_TYPES = ("b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")
_NDARRAY = object()
"""Stands for numpy.ndarray: something that cannot be called."""


class Refused(ValueError):
    """What a pickle wants, and no array needs."""


class SparseMatrix:
    """What a pickled matrix of scipy says of itself."""

    def __init__(self, parts: dict[str, Any]):
        try:
            rows, columns = parts["_shape"]
            self.shape = (int(rows), int(columns))
            self.starts, self.places, self.values = (parts[name] for name in ("indptr", "indices", "data"))
        except (KeyError, TypeError, ValueError, OverflowError) as problem:
            raise Refused(f"it holds no sparse matrix ({type(problem).__name__}: {problem})") from None


def read_pickle(content: bytes) -> Any:
    """The value of a pickle of Python 2 or 3: arrays of numpy, sparse matrices as `SparseMatrix`, and plain values."""
    _check_codes(content)
    return _plain(_Unpickler(io.BytesIO(content), encoding="latin1").load(), {})


def _check_codes(content: bytes) -> None:
    for operation, argument, _ in pickletools.genops(content):
        if operation.name not in _PLAIN_CODES:
            raise Refused(f"it has the instruction {operation.name}, which no array needs")
        # a pickle may say "remember this as number 4,000,000,000", and the unpickler makes room for as many
        if operation.name in ("PUT", "BINPUT", "LONG_BINPUT") and not 0 <= int(argument or 0) <= len(content):
            raise Refused(f"it wants to remember {argument:,} things, and has {len(content):,} bytes")


class _Type:
    """What a file says of a dtype: a plain number of some bytes."""

    def __init__(self, code: Any, *rest: Any):
        if code not in _TYPES:
            raise Refused(f"it has numbers of type {str(code)[:20]!r}, which are none")
        self.code, self.order = code, "="

    def __setstate__(self, state: Any) -> None:
        # version, order of the bytes, and what only types that are made of others have
        if not isinstance(state, tuple) or len(state) < 5 or state[1] not in ("<", ">", "|", "=") or any(state[2:5]):
            raise Refused("the type of its numbers is made of other types")
        self.order = state[1]

    def dtype(self) -> np.dtype:
        return np.dtype(self.code).newbyteorder("=" if self.order == "|" else self.order)  # pyright: ignore[reportArgumentType]


class _Array:
    """What a file says of an array."""

    state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def array(self) -> np.ndarray:
        try:
            _, shape, kind, by_columns, data = self.state
            data = data.encode("latin1") if isinstance(data, str) else bytes(memoryview(data))
            dtype, shape = kind.dtype(), tuple(int(size) for size in shape)
            if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != len(data):
                raise Refused(f"its shape is {shape}, and it has {len(data):,} bytes")
            made = np.frombuffer(data, dtype).reshape(shape, order="F" if by_columns else "C")
        except (AttributeError, TypeError, UnicodeEncodeError, OverflowError) as problem:
            raise Refused(f"it holds no array ({type(problem).__name__}: {problem})") from None
        return made.astype(dtype.newbyteorder("="))


class _Matrix:
    state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state


def _reconstruct(kind: Any, shape: Any, code: Any) -> _Array:
    """What numpy makes an array with before it gives it its state: an empty one."""
    if kind is not _NDARRAY or shape != (0,) or code not in ("b", b"b"):
        raise Refused(f"it wants to make room for an array of shape {str(shape)[:40]}")
    return _Array()


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        # numpy and scipy have moved their modules since these files were written; old and new pickles are read
        if module in ("numpy.core.multiarray", "numpy._core.multiarray") and name == "_reconstruct":
            return _reconstruct
        if module in ("scipy.sparse.csr", "scipy.sparse._csr") and name == "csr_matrix":
            return type("_Matrix", (_Matrix,), {})  # a new one: a pickle can change a class that it was given
        known = {
            ("numpy", "ndarray"): _NDARRAY,
            ("numpy", "dtype"): lambda *arguments: _Type(*arguments),
            ("collections", "defaultdict"): _default_dict,
            ("__builtin__", "list"): list,
            ("builtins", "list"): list,
        }
        if (module, name) not in known:
            raise Refused(f"it wants {module}.{name}, which no graph needs and which could run code")
        return known[module, name]


def _default_dict(*arguments: Any) -> dict[Any, Any]:
    if arguments not in ((list,), ()):
        raise Refused("it has a dict with another default than lists")
    return defaultdict(list)


def _plain(value: Any, seen: dict[int, Any]) -> Any:
    """With arrays in place of what was said of them."""
    if id(value) not in seen:
        if isinstance(value, _Array):
            seen[id(value)] = value.array()
        elif isinstance(value, _Matrix):
            parts = value.state if isinstance(value.state, dict) else {}
            seen[id(value)] = SparseMatrix({name: _plain(part, seen) for name, part in parts.items()})
        elif isinstance(value, _Type):
            raise Refused("it holds the type of an array, and no array")
        else:
            return value
    return seen[id(value)]
