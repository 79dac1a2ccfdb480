"""A value that holds inside a `with` block: one for each thread and each asyncio task, and readable by torch.compile."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Generic, TypeVar

import torch

from bayesattn.support.compilation import constant_when_compiled

Value = TypeVar("Value")


class PerThread(threading.local):
    """A value for each thread: enough for what begins and ends within one forward pass, in which no task can wait."""

    __slots__ = ()  # with a `__dict__` of its own, beside that of the thread, compiled code would write to the wrong one

    def __init__(self, value: Any):  # called in each thread; torch.compile does not guard on what is found in the class
        self.value = value


class ScopeVariable(Generic[Value]):
    """A context variable. torch.compile cannot read one, so compiled code reads a copy that is kept for each thread.

    The copy is right as long as the blocks of a thread are nested. Tasks of asyncio that await inside their blocks interleave them:
    eager code does not mind, but compiled code would read the other task's value, so that is refused.

    >>> variable = ScopeVariable("example", 0)
    >>> with variable.held(1):
    ...     variable.get()
    1
    >>> variable.get()
    0
    """

    def __init__(self, name: str, default: Value):
        self.name = name
        self.in_context: ContextVar[Value] = ContextVar(name, default=default)
        self.in_thread = PerThread(default)
        self._is_compiled = False

    def get(self) -> Value:
        """The value of the innermost open block."""
        if torch.compiler.is_compiling():
            self._note_compilation()
            return self.in_thread.value
        return self.in_context.get()

    @contextmanager
    def held(self, value: Value) -> Iterator[None]:
        """`value`, inside this block."""
        outer_of_thread = self.in_thread.value
        self.in_thread.value = value
        token = None if torch.compiler.is_compiling() else self.in_context.set(value)
        try:
            yield
        finally:
            interleaved = self.in_thread.value is not value
            self.in_thread.value = outer_of_thread
            if token is not None:
                self.in_context.reset(token)
            if interleaved and self._is_compiled:
                raise RuntimeError(
                    f"Another asyncio task opened or closed a {self.name} block while this one awaited inside its own, and a compiled "
                    "model was used in this process: it may have seen the other task's block. Do not await inside the block, or do not "
                    "compile the model."
                )

    @constant_when_compiled
    def _note_compilation(self) -> bool:
        self._is_compiled = True
        return True
