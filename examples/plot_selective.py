"""Plot selective prediction on table bam-5's language models: the risk of the surest share of the test examples, a picture for each task.

bayesattn table bam-5 --budget small
python examples/plot_selective.py runs plots
"""

import argparse
from pathlib import Path

import torch

from bayesattn.experiments.report.plots import against_level
from bayesattn.experiments.runs import RunFolder
from bayesattn.experiments.tables import TABLES

parser = argparse.ArgumentParser()
parser.add_argument("runs", type=Path)
parser.add_argument("folder", type=Path, nargs="?", default=Path("plots"))
arguments = parser.parse_args()

table = TABLES["bam-5"]
for task in table.tasks():
    curves, coverages = {}, []
    for row in table.methods:
        folders = [RunFolder.of(arguments.runs, each) for each in table.configs("small", tasks=[task], methods=[row])]
        points = [result["details"]["risk_at_coverage"] for folder in folders if (result := folder.result())]
        if points:
            coverages = [100 * float(coverage) for coverage in points[0]]
            curves[row] = torch.tensor([list(each.values()) for each in points])
    if not curves:
        print(f"{task}: no run in {arguments.runs}; bayesattn table bam-5 --budget small --only {task} makes them.")
        continue
    labels = ("coverage: the surest examples, %", "squared error" if task == "stsb" else "share of errors")
    print(against_level(curves, coverages, labels, f"{task}, MiniLM", arguments.folder / f"{task}-selective.png"))
