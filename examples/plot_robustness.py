"""Plot how accuracy and PAvPU of graph attention fall when words are wrong or edges random: from the results of table bam-noise.

bayesattn table bam-noise
python examples/plot_robustness.py results/bam-noise.json docs/plots
"""

import argparse
from pathlib import Path

import torch

from bayesattn.report.plots import against_level
from bayesattn.tables import TABLES
from bayesattn.tables.results import read
from bayesattn.tasks.graphs import EDGE_LEVELS, NOISE_LEVELS

parser = argparse.ArgumentParser()
parser.add_argument("results", type=Path, nargs="?", default=Path("results/bam-noise.json"))
parser.add_argument("folder", type=Path, nargs="?", default=Path("plots"))
arguments = parser.parse_args()

results = read(arguments.results)
kinds = {
    "noise": ("share of wrong words", NOISE_LEVELS),
    "edges": ("random edges added, times those there", EDGE_LEVELS),
}
for graph in ("cora", "citeseer"):
    for kind, (words, levels) in kinds.items():
        for figure in ("accuracy", "pavpu_0.05"):
            names = [figure, *(f"{figure}_{kind}_{level:g}" for level in levels)]
            curves = {
                method: torch.tensor([[run["metrics"][name] for name in names] for run in runs])
                for method in TABLES["bam-noise"].methods
                if (runs := results.of(graph, method))
            }
            if curves:
                path = arguments.folder / f"{graph}-{kind}-{figure}.png"
                print(against_level(curves, [0.0, *levels], (words, figure), f"{graph}: {figure}", path))
