"""What random attention costs on graphs: time of a training epoch beside PyTorch Geometric's own GATConv, memory against edges.

    python benchmarks/graphs.py [--repeats 15] [--threads 2] [--output results/graphs_benchmark.json]

Time: PubMed (a generated graph of its size where the files are not found), the network of table bam-1 with GATConv as it is and
converted with bam-wc's posterior; an epoch is what a run does: a training step and a validation pass. The two are timed in turn,
repeat by repeat; the ratio is the median over repeats. Both have the sparse first layer; GATConv with its own dense one is timed beside.

Memory: the peak of one training step of the converted network beyond what the process has before it, for generated graphs
with 1e4 … 1e6 edges and nodes in proportion (ten edges each), each in a fresh process.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch_geometric
from torch import Tensor, nn
from torch_geometric.nn import GATConv

import bayesattn as ba
from bayesattn.experiments.data.files import DataError
from bayesattn.experiments.data.graph import Graph, undirected
from bayesattn.experiments.data.planetoid import load_planetoid
from bayesattn.experiments.models.gat import GAT
from bayesattn.experiments.runs.single import commit

EDGES = (10_000, 31_623, 100_000, 316_228, 1_000_000)
POSTERIOR = ba.Weibull(k=10.0, prior=ba.ContextualGamma(beta=1e-4, hidden=5, over="all"))
"""bam-wc on PubMed."""


def generated(nodes: int, links: int, features: int, words: int) -> Graph:
    """Random links between nodes with `words` random features each."""
    generator = torch.Generator().manual_seed(0)
    where = torch.randint(0, features, (nodes, words), generator=generator)
    x = torch.zeros(nodes, features).scatter_(1, where, 1.0 / words)
    edges = undirected(torch.randint(0, nodes, (links, 2), generator=generator), nodes)
    return Graph(x.to_sparse_csr(), edges, torch.arange(nodes) % 3, *torch.arange(60).split(20))


def epoch_of(network: nn.Module, graph: Graph, features: Tensor, is_bayesian: bool) -> Callable[[], None]:
    """One epoch: a training step, and the pass that validates."""
    optimiser = torch.optim.Adam(network.parameters(), lr=0.01, weight_decay=1e-3)

    def run() -> None:
        network.train()
        with ba.record() as latents:
            logits = network(features, graph.edges)
        nll = nn.functional.cross_entropy(logits[graph.train], graph.labels[graph.train])
        loss = ba.elbo(nll[None], latents if is_bayesian else None, kl_reduction="mean").loss
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        network.eval()
        with torch.no_grad():
            network(features, graph.edges)

    return run


def network_of(graph: Graph, is_bayesian: bool = False, own_first_layer: bool = False) -> nn.Module:
    torch.manual_seed(0)
    network = GAT(graph.features.shape[1], graph.classes, output_heads=8)
    if own_first_layer:
        network.first = GATConv(graph.features.shape[1], 8, 8, dropout=0.6, add_self_loops=False)
        network = nn.Sequential(nn.Dropout(0.6), network)
        network.forward = lambda x, edges: network[1](network[0](x), edges)
    return ba.convert(network, POSTERIOR) if is_bayesian else network


def measure_time(repeats: int) -> dict[str, Any]:
    try:
        graph, name = load_planetoid("pubmed"), "PubMed"
    except DataError:
        graph, name = generated(19_717, 44_324, 500, 50), "generated, of PubMed's size"
    dense = graph.features.to_dense()
    epochs = {
        "GATConv": epoch_of(network_of(graph), graph, graph.features, False),
        "bam-wc": epoch_of(network_of(graph, is_bayesian=True), graph, graph.features, True),
        "GATConv, dense input": epoch_of(network_of(graph, own_first_layer=True), graph, dense, False),
    }
    times: dict[str, list[float]] = {each: [] for each in epochs}
    for repeat in range(repeats + 2):  # two to warm up
        for each, run in epochs.items():
            start = time.perf_counter()
            run()
            if repeat >= 2:
                times[each].append(time.perf_counter() - start)
    return {
        "graph": name,
        "edges": graph.edges.shape[1],
        **{
            each: {
                "milliseconds": round(1000 * statistics.median(taken), 1),
                "ratio": round(statistics.median(t / own for t, own in zip(taken, times["GATConv"], strict=True)), 3),
            }
            for each, taken in times.items()
        },
    }


def memory_of_step(edges: int) -> dict[str, float]:
    """In this process: the peak of one training step beyond what was there before, in megabytes."""
    nodes = edges // 10
    graph = generated(nodes, round(4.5 * nodes), 50, 5)  # both directions and a self-loop: ten edges for each node
    run = epoch_of(network_of(graph, is_bayesian=True), graph, graph.features, True)
    small = generated(100, 300, 50, 5)
    epoch_of(network_of(small, is_bayesian=True), small, small.features, True)()  # what torch loads on first use
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    before = kilobytes("VmRSS")
    run()
    return {"edges": graph.edges.shape[1], "megabytes": round((kilobytes("VmHWM") - before) / 1024, 1)}


def kilobytes(field: str) -> int:
    """What the system says of this process: VmRSS, what it has; VmHWM, the most it had."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field))


def measure_memory() -> dict[str, Any]:
    rows = []
    for edges in EDGES:
        command = [sys.executable, "-W", "ignore", __file__, "--memory-of", str(edges)]
        answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        rows.append(json.loads(answer.splitlines()[-1]))
    first, last = rows[1], rows[-1]
    slope = math.log(last["megabytes"] / first["megabytes"]) / math.log(last["edges"] / first["edges"])
    return {
        "rows": rows,
        "exponent": round(slope, 3),
        "bytes_per_edge": round(last["megabytes"] * 2**20 / last["edges"]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--output", type=Path, default=Path("results/graphs_benchmark.json"))
    parser.add_argument("--memory-of", type=int, help="edges: print the memory of one step, and no more")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    if arguments.memory_of:
        torch.set_num_threads(1)
        print(json.dumps(memory_of_step(arguments.memory_of)))
        return
    torch.set_num_threads(arguments.threads)
    load_before = os.getloadavg()[0]
    report = {
        "command": "python benchmarks/graphs.py " + " ".join(sys.argv[1:]),
        "commit": commit(),
        "repeats": arguments.repeats,
        "threads": arguments.threads,
        "load_before": round(load_before, 2),
        "machine": platform.processor() or platform.machine(),
        "torch": torch.__version__,
        "torch_geometric": torch_geometric.__version__,
        "time": measure_time(arguments.repeats),
        "memory": measure_memory(),
    }
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(report, indent=2) + "\n")
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
