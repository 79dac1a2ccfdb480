"""Plot how figures fall when the inputs are disturbed: a picture for each part of table bam-noise (graphs) or bam-vqa-noise (images).

bayesattn table bam-vqa-noise --budget small
python examples/plot_robustness.py bam-vqa-noise results/bam-vqa-noise-small.json plots
"""

import argparse
import re
from pathlib import Path

import torch

from bayesattn.experiments.report.plots import against_level
from bayesattn.experiments.tables import TABLES
from bayesattn.experiments.tables.results import read

parser = argparse.ArgumentParser()
parser.add_argument("table", choices=("bam-noise", "bam-vqa-noise"))
parser.add_argument("results", type=Path)
parser.add_argument("folder", type=Path, nargs="?", default=Path("plots"))
arguments = parser.parse_args()

results, table = read(arguments.results), TABLES[arguments.table]
for part in table.datasets:
    clean, *disturbed = part.metrics
    curves = {
        method: torch.tensor([[run["metrics"][m.ours] * m.scale for m in part.metrics] for run in runs])
        for method in table.methods
        if (runs := results.of(part.task, method))
    }
    if curves:
        title, _, disturbance = part.label.partition(" against ")
        path = arguments.folder / f"{re.sub(r'[^a-z0-9.]+', '-', title.lower()).strip('-')}-noise.png"
        levels = [0.0, *(float(m.title) for m in disturbed)]
        labels = (disturbance or "level", clean.title.removesuffix(", none"))
        print(against_level(curves, levels, labels, title, path))
