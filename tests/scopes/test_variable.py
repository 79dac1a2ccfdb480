"""A scope's value: nested, per thread, per task; and what compiled code sees of it."""

import asyncio
import subprocess
import sys
import threading

import pytest

from bayesattn.scopes.variable import PerThread, ScopeVariable


def test_blocks_nest_and_close_at_an_exception() -> None:
    variable = ScopeVariable("test()", 0)
    with variable.held(1):
        with variable.held(2):
            assert variable.get() == 2
        with pytest.raises(RuntimeError, match="stop"), variable.held(2):
            raise RuntimeError("stop")
        assert variable.get() == 1
    assert variable.get() == 0


def test_tasks_that_wait_inside_their_blocks_have_their_own_values() -> None:
    variable = ScopeVariable("test()", 0)

    async def hold(value: int) -> bool:
        with variable.held(value):
            await asyncio.sleep(0.001 * value)
            return variable.get() == value

    async def together() -> list[bool]:
        return await asyncio.gather(*(hold(value) for value in (5, 1, 3)))

    assert asyncio.run(together()) == [True, True, True]
    assert variable.get() == 0


COMPILED = """
import asyncio, torch
from torch import nn
import bayesattn as ba
from bayesattn.scopes.variable import PerThread, ScopeVariable

variable = ScopeVariable("test()", None)
compiled = torch.compile(lambda x: x if variable.get() is None else x + variable.get(), backend="eager", fullgraph=True)
zero = torch.zeros(())
assert compiled(zero) == 0
for value in (1, 2):
    with variable.held(torch.tensor(value)):
        assert compiled(zero) == value
    assert compiled(zero) == 0

model = ba.nn.MultiheadAttention(8, 2, batch_first=True, posterior=ba.Weibull(k=2.0))
layer = torch.compile(model, backend="eager")
x = torch.randn(2, 3, 8)
layer(x, x, x)  # nobody records
with ba.record() as latents:
    layer(x, x, x)
assert len(latents) == 1, len(latents)

kept = PerThread(None)

def write_and_read(x):
    kept.value = 3
    torch._dynamo.graph_break()
    return x + kept.value

assert torch.compile(write_and_read, backend="eager")(zero) == 3
assert kept.value == 3

async def hold(value, seconds):
    with variable.held(torch.tensor(value)):
        await asyncio.sleep(seconds)
        return compiled(zero).item()

async def together():
    return await asyncio.gather(hold(1, 0.01), hold(2, 0.02), return_exceptions=True)

results = asyncio.run(together())
assert all("Do not await inside the block" in str(result) for result in results), results
"""


def test_each_thread_has_its_own_value() -> None:
    kept = PerThread("first")
    kept.value = "changed"
    seen: list[str] = []
    thread = threading.Thread(target=lambda: seen.append(kept.value))
    thread.start()
    thread.join()
    assert seen == ["first"]
    assert kept.value == "changed"


def test_compiled_code_sees_the_block_that_is_open_and_not_the_one_of_its_compilation() -> None:
    """In a process without shape checks, which cannot be compiled. A model that first ran without a recorder had no KL in it; what
    was written before a graph break was lost, because an object of a subclass of threading.local has a `__dict__` that nobody reads."""
    subprocess.run([sys.executable, "-c", COMPILED], check=True, capture_output=True, text=True)
