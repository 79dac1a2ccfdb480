"""Plot the log-likelihood of mean-field weights against the scale of their prior (the thesis's figure 3.10): from table prior-scale.

bayesattn table prior-scale --budget small
python examples/plot_prior_scale.py results/prior-scale-small.json docs/images/prior-scale.png
"""

import argparse
from pathlib import Path

import torch

from bayesattn.experiments.report.plots import against_level
from bayesattn.experiments.tables import TABLES
from bayesattn.experiments.tables.results import read

parser = argparse.ArgumentParser()
parser.add_argument("results", type=Path, nargs="?", default=Path("results/prior-scale-small.json"))
parser.add_argument("output", type=Path, nargs="?", default=Path("prior-scale.png"))
arguments = parser.parse_args()

table, results = TABLES["prior-scale"], read(arguments.results)
curves = {}
for dataset in table.datasets:
    by_scale = [
        [run["metrics"]["log_likelihood"] for run in results.of(dataset.task, variant.method, variant.options)]
        for variant in table.variants.values()
    ]
    if all(by_scale):
        curves[dataset.label] = torch.tensor(by_scale).T
labels = ("scale of the prior", "log-likelihood of a test series (nats)")
print(
    against_level(curves, [float(scale) for scale in table.variants], labels, "Gaussian mean field", arguments.output)
)
