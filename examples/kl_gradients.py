"""What BAM's KL does with the paper's hyper-parameters on graphs: the size of its gradient beside that of the likelihood, at the start.

python examples/kl_gradients.py cora citeseer pubmed
"""

import argparse

import torch

import bayesattn as ba
from bayesattn.runs import configure
from bayesattn.tables import TABLES

parser = argparse.ArgumentParser()
parser.add_argument("graphs", nargs="+", choices=TABLES["bam-1"].tasks())

for graph in parser.parse_args().graphs:
    for name in ("bam-lf", "bam-lc", "bam-wf", "bam-wc"):
        config = configure(graph, name, method_options=TABLES["bam-1"].method_options[graph][name])
        task, method = config.make_task(), config.make_method()
        torch.manual_seed(0)
        model = method.build(task).train()
        with ba.record() as latents:
            nll = task.nll(model, task.load().train).mean()
        kl = ba.elbo(nll[None], latents, kl_reduction="mean").loss - nll
        parts = {
            "features": [p for key, p in model.named_parameters() if key.endswith("lin.weight")],
            "attention": [p for key, p in model.named_parameters() if "att_" in key],
        }
        for part, parameters in parts.items():
            of_nll, of_kl = (
                torch.cat([g.flatten() for g in torch.autograd.grad(loss, parameters, retain_graph=True)]).norm()
                for loss in (nll, kl)
            )
            print(f"{graph:9} {name}  {part:9}  {of_kl / of_nll:.0e} of the likelihood's")
