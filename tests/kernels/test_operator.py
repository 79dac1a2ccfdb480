"""`native` and `chunked` against `reference` in float64, given the same seed: outputs, KL, counts, all gradients."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import bayesattn as ba
from bayesattn.kernels import native
from helpers.backend_cases import POSTERIORS, TOLERANCES, assert_same, results

NATIVE = pytest.mark.skipif(native.library().functions is None, reason="no compiler")
BACKENDS = ["chunked", pytest.param("native", marks=NATIVE)]


@st.composite
def problems(draw: Any) -> tuple[tuple[Tensor, ...], dict[str, Any]]:
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    batch, key_heads, groups = draw(st.integers(1, 2)), draw(st.integers(1, 2)), draw(st.integers(1, 2))
    queries, keys = draw(st.integers(1, 70)), draw(st.integers(1, 140))
    features, values = draw(st.sampled_from([1, 7, 16, 20])), draw(st.sampled_from([3, 16, 33]))
    heads = key_heads * groups

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).float().double()

    tensors = (
        normal(batch, heads, queries, features),
        normal(batch, key_heads, keys, features),
        normal(batch, key_heads, keys, values),
    )
    arguments: dict[str, Any] = {"is_causal": draw(st.booleans()), "scale": draw(st.sampled_from([None, 0.3, 2.0]))}
    kind = draw(st.sampled_from(["none", "boolean", "keys", "additive"]))
    mask_shape = (
        draw(st.sampled_from([1, batch])),
        draw(st.sampled_from([1, heads])),
        1 if kind == "keys" else queries,
        keys,
    )
    if kind in ("boolean", "keys"):
        arguments["attn_mask"] = torch.rand(mask_shape, generator=generator) > 0.3
    elif kind == "additive":
        bias = torch.randn(mask_shape, generator=generator)
        arguments["attn_mask"] = bias.masked_fill(torch.rand(mask_shape, generator=generator) > 0.8, float("-inf"))
    if draw(st.booleans()):
        arguments["key_lengths"] = torch.randint(0, keys + 1, (batch,), generator=generator)
    if draw(st.booleans()):
        arguments["query_mask"] = torch.rand(batch, queries, generator=generator) > 0.3
    return tensors, arguments


@pytest.mark.parametrize("backend", BACKENDS)
@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    problem=problems(),
    name=st.sampled_from(sorted(POSTERIORS)),
    noise=st.sampled_from(["philox", "hash"]),
    dropout=st.booleans(),
)
def test_every_backend_gives_what_reference_gives(
    backend: str, problem: tuple[tuple[Tensor, ...], dict[str, Any]], name: str, noise: Any, dropout: bool
) -> None:
    tensors, arguments = problem
    posterior = POSTERIORS[name].bind(num_heads=tensors[0].shape[1], head_dim=tensors[0].shape[-1])
    if dropout and posterior.counter_noise:
        arguments["dropout_p"] = 0.25
    with ba.kernels.use(noise=noise):
        reference = results(posterior, tensors, torch.float64, backend="reference", **arguments)
        assert_same(results(posterior, tensors, torch.float32, backend=backend, **arguments), reference)


@pytest.mark.parametrize("name", sorted(POSTERIORS))
@pytest.mark.parametrize("backend", BACKENDS)
def test_every_posterior_over_several_blocks_of_keys(backend: str, name: str) -> None:
    torch.manual_seed(1)
    tensors = tuple(torch.randn(2, 2, n, 16) for n in (90, 200, 200))
    posterior = POSTERIORS[name].bind(num_heads=2, head_dim=16)
    mask = torch.rand(2, 1, 90, 200) > 0.2
    mask[0, :, 5] = False
    for arguments in ({}, {"is_causal": True}, {"attn_mask": mask}):
        reference = results(posterior, tensors, torch.float64, backend="reference", **arguments)
        ours = results(posterior, tensors, torch.float32, backend=backend, **arguments)
        assert_same(ours, reference)
        if "attn_mask" in arguments:
            assert torch.equal(ours["output"][0, :, 5], torch.zeros(2, 16))


@pytest.mark.parametrize("backend", ["reference", *BACKENDS])
def test_two_calls_differ_and_a_seed_repeats(backend: Any) -> None:
    q = torch.randn(1, 2, 40, 16)

    def draw(generator: torch.Generator | None = None) -> Tensor:
        return ba.attend(q, q, q, ba.Weibull(1.0), backend=backend, generator=generator)

    torch.manual_seed(5)
    one, other = draw(), draw()
    torch.manual_seed(5)
    assert torch.equal(draw(), one)
    assert not torch.allclose(one, other, atol=1e-3)
    mine = [draw(torch.Generator().manual_seed(9)) for _ in range(2)]
    assert torch.equal(mine[0], mine[1])
    with ba.sampling(generator=torch.Generator().manual_seed(9)):
        assert torch.equal(draw(), mine[0])


@pytest.mark.parametrize("backend", BACKENDS)
def test_eval_mode_is_the_point_estimate(backend: Any) -> None:
    q, k, v = (torch.randn(2, 2, 50, 16) for _ in range(3))
    theirs = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    ours = ba.attend(q, k, v, ba.Weibull(1.0).eval(), is_causal=True, backend=backend)
    assert torch.allclose(ours, theirs, atol=1e-5)


@pytest.mark.parametrize("backend", BACKENDS)
def test_no_future_key_has_any_influence(backend: Any) -> None:
    q, k, v = (torch.randn(1, 2, 130, 16) for _ in range(3))
    outputs = []
    for filler in (0.0, 1e4):
        k[:, :, 100:], v[:, :, 100:] = filler, filler
        torch.manual_seed(2)
        outputs.append(ba.attend(q, k, v, ba.Weibull(0.1), is_causal=True, backend=backend)[:, :, :100])
    assert torch.equal(outputs[0], outputs[1])


COMPILED = """
import sys
import torch, bayesattn as ba
q, k, v = (torch.randn(1, 2, 130, 16) for _ in range(3))
posterior = ba.Weibull(2.0, ba.ContextualGamma(0.5)).bind(num_heads=2, head_dim=16)
for backend in sys.argv[1:]:
    def step(q, k, v):
        with ba.record() as latents:
            output = ba.attend(q, k, v, posterior, backend=backend, is_causal=True)
        return output, latents.local_kl

    results = []
    for function in (torch.compile(step, backend="aot_eager", fullgraph=True), step):
        torch.manual_seed(0)
        leaf = q.clone().requires_grad_()
        output, kl = function(leaf, k, v)
        gradient, = torch.autograd.grad(output.square().sum() + kl.sum(), leaf)
        results.append((output.detach(), kl.detach(), gradient))
    print(max(float((a - b).abs().max() / b.abs().max()) for a, b in zip(*results)))
"""


@pytest.mark.parametrize("backends", [["auto"], pytest.param(["reference", "chunked"], marks=pytest.mark.slow)])
def test_compiled_in_one_graph_it_gives_the_same(backends: list[str]) -> None:
    """In a process of its own, because torch.compile cannot trace the shape checks of these tests."""
    command = [sys.executable, "-c", COMPILED, *backends]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    differences = [float(line) for line in done.stdout.splitlines()]
    assert len(differences) == len(backends)
    assert max(differences) < 1e-5


EXPORTED = """
import torch, bayesattn as ba
torch.set_num_threads(1)

class Attention(torch.nn.Module):
    def __init__(self, backend):
        super().__init__()
        self.posterior, self.backend = ba.Weibull(2.0), backend

    def forward(self, q, k, v):
        return ba.attend(q, k, v, self.posterior, backend=self.backend)

q, k, v = (torch.randn(1, 2, 70, 16) for _ in range(3))
for backend in ("chunked", "native"):
    model = Attention(backend)
    program = torch.export.export(model, (q, k, v))
    graphs = [part.graph for part in program.graph_module.modules() if hasattr(part, "graph")]
    outputs = []
    for run in (program.module(), model):
        torch.manual_seed(3)
        outputs.append(run(q, k, v).detach())
    calls = sum("bayesattn" in str(node.target) for graph in graphs for node in graph.nodes)
    print(calls, float((outputs[0] - outputs[1]).abs().max()))
"""


def test_exported_it_is_one_operator() -> None:
    """Also where exporting is the first use of the native kernel, which is then loaded while torch traces."""
    done = subprocess.run([sys.executable, "-c", EXPORTED], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["1 0.0", "1 0.0"]


@pytest.mark.slow
def test_compiled_by_inductor_it_gives_the_same() -> None:
    code = COMPILED.replace('backend="aot_eager", ', "")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    differences = [float(line) for line in done.stdout.splitlines()]
    assert len(differences) == 3
    assert max(differences) < 1e-5


@pytest.mark.parametrize("backend", BACKENDS)
def test_under_autocast_it_is_computed_in_float32(backend: Any) -> None:
    q, k, v = (torch.randn(1, 2, 70, 16) for _ in range(3))
    torch.manual_seed(1)
    expected = ba.attend(*(x.bfloat16().float() for x in (q, k, v)), ba.LogNormal(0.5), backend=backend)
    torch.manual_seed(1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = ba.attend(*(x.bfloat16() for x in (q, k, v)), ba.LogNormal(0.5), backend=backend)
    assert output.dtype == torch.bfloat16
    if backend == "native":  # whose products are of bfloat16
        assert (output - expected).abs().max() < TOLERANCES[torch.bfloat16] * expected.abs().max()
    else:
        assert torch.equal(output, expected.bfloat16())


@pytest.mark.parametrize(
    ("backend", "dtype"),
    [
        ("chunked", torch.float32),
        pytest.param("native", torch.float32, marks=NATIVE),
        pytest.param("native", torch.bfloat16, marks=NATIVE),
    ],
)
def test_the_operator_is_registered_as_torch_wants_it(backend: str, dtype: torch.dtype) -> None:
    q, k, v = (torch.randn(1, 2, 6, 16, dtype=dtype, requires_grad=True) for _ in range(3))
    scale = torch.full((1, 2, 6), 0.4, requires_grad=True)
    arguments = (
        q, k, v, None, None, None, torch.tensor([4]), scale, None, None,
        0.25, True, "normal", "philox", 0.1, "sum", True, False, 0.0, 1, backend,
    )  # fmt: skip
    torch.library.opcheck(torch.ops.bayesattn.attention.default, arguments)


@NATIVE
@pytest.mark.parametrize("heads", [1, 3], ids=["one head", "three heads"])
@pytest.mark.parametrize(
    ("name", "dtype"),
    [("weibull-contextual", torch.float32), ("dirichlet", torch.float32), ("lognormal", torch.bfloat16)],
)
def test_threads_and_tiles_do_not_change_a_bit(
    monkeypatch: pytest.MonkeyPatch, name: str, dtype: torch.dtype, heads: int
) -> None:
    """One head has its blocks of keys shared out, three on two threads are two whole ones and the blocks of the third."""
    torch.manual_seed(1)
    tensors = tuple(torch.randn(1, heads, 200, 20) for _ in range(3))
    posterior = POSTERIORS[name].bind(num_heads=heads, head_dim=20)
    expected = results(posterior, tensors, dtype, backend="native", is_causal=True, dropout_p=0.2)
    threads = torch.get_num_threads()
    try:
        for count, tile in ((1, 64), (2, 16), (3, 128), (2, 24), (5, 64)):
            torch.set_num_threads(count)
            monkeypatch.setattr(native, "QUERY_TILE", tile)
            ours = results(posterior, tensors, dtype, backend="native", is_causal=True, dropout_p=0.2)
            for part in expected:
                if "contextual" in name and (part == "key" or "network" in part):  # through torch's matrix products
                    torch.testing.assert_close(
                        ours[part], expected[part], rtol=1e-5, atol=1e-2 if "network" in part else 1e-5
                    )
                else:
                    assert torch.equal(ours[part], expected[part]), (part, count, tile)
    finally:
        torch.set_num_threads(threads)


@NATIVE
def test_without_gradients_it_goes_past_the_dispatcher_to_the_same_numbers() -> None:
    q, k, v = (torch.randn(1, 2, 70, 16, requires_grad=True) for _ in range(3))
    calls: list[str] = []

    class Listener(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            calls.append(func.name())
            return func(*args, **(kwargs or {}))

    def draw() -> Tensor:
        torch.manual_seed(1)
        return ba.attend(q, k, v, ba.Weibull(1.0), backend="native")

    with torch.no_grad():
        direct = draw()
        with Listener():
            heard = draw()
    assert "bayesattn::attention" in calls
    assert torch.equal(direct, heard)
    assert torch.equal(draw(), direct)
    assert draw().requires_grad


@NATIVE
def test_strides_do_not_matter() -> None:
    packed = torch.randn(2, 40, 3, 4, 16)
    q, k, v = packed.permute(2, 0, 3, 1, 4)
    outputs = []
    for tensors in ((q, k, v), (q.contiguous(), k.contiguous(), v.contiguous())):
        torch.manual_seed(1)
        outputs.append(ba.attend(*tensors, ba.Weibull(1.0), backend="native"))
    assert torch.equal(outputs[0], outputs[1])


@pytest.mark.parametrize("backend", BACKENDS)
def test_nvibs_key_bias_is_an_additive_mask(backend: Any) -> None:
    """NVIB's training form is a bias of each key: it runs on torch's own kernel, and on ours."""
    q, k, v = (torch.randn(2, 2, 40, 16) for _ in range(3))
    bias = torch.randn(2, 1, 1, 40)
    theirs = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=bias)
    assert torch.allclose(ba.attend(q, k, v, ba.Softmax(), attn_mask=bias, backend=backend), theirs, atol=1e-5)
