"""What BAM's KL does in tables bam-1 and bam-5: the size of its gradient beside that of the likelihood, at the start.

python examples/kl_gradients.py cora citeseer pubmed
python examples/kl_gradients.py cola rte mrpc stsb sst2
"""

import argparse
import re

import torch

import bayesattn as ba
from bayesattn.experiments.tables import TABLES

BUDGETS = {"bam-1": "paper", "bam-5": "small"}
PARTS = {
    "bam-1": {"features": r"lin\.weight$", "attention": "att_"},
    "bam-5": {
        "queries and keys": r"self\.(query|key)\.",
        "rest of the layers": r"encoder.*\.(value|dense|LayerNorm)\.",
    },
}
TABLE_OF = {task: table for table in PARTS for task in TABLES[table].tasks()}

parser = argparse.ArgumentParser()
parser.add_argument("tasks", nargs="+", choices=list(TABLE_OF))

for name in parser.parse_args().tasks:
    table = TABLES[TABLE_OF[name]]
    for row in sorted({"bam-lf", "bam-lc", "bam-wf", "bam-wc"}.intersection(table.methods)):
        (config,) = table.configs(BUDGETS[table.name], seeds=1, tasks=[name], methods=[row])
        task, method = config.make_task(), config.make_method()
        torch.manual_seed(0)
        model = method.build(task).train()
        examples = task.load().train
        if table.name == "bam-5":
            examples = tuple(part[: config.training.batch_size] for part in examples)
        with ba.record() as latents:
            nll = task.nll(model, examples)
        kl = ba.elbo(nll, latents, kl_reduction="mean", compare_gradients=False).loss - nll.mean()
        for part, pattern in PARTS[table.name].items():
            parameters = [p for key, p in model.named_parameters() if re.search(pattern, key)]
            of_nll, of_kl = (
                torch.nn.utils.get_total_norm(
                    torch.autograd.grad(loss, parameters, retain_graph=True, materialize_grads=True)
                )
                for loss in (nll.mean(), kl)
            )
            print(f"{name:9} {row}  {part:18}  {of_kl / of_nll:.1g} of the likelihood's")
