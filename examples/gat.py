"""A graph attention network of PyTorch Geometric on Cora, made Bayesian: which nodes is it unsure of?

    python examples/gat.py --epochs 100

Finds the raw Planetoid files in shared/data or in $BAYESATTN_DATA.
"""

import argparse
import shutil
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from torch_geometric.datasets import Planetoid
from torch_geometric.nn import GATConv

import bayesattn as ba
from bayesattn.experiments.data.folder import data_folder

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=100)
arguments = parser.parse_args()

with tempfile.TemporaryDirectory() as folder:  # PyG writes its processed files beside the raw ones
    raw = Path(folder) / "Cora" / "raw"
    raw.mkdir(parents=True)
    for path in data_folder("planetoid").rglob("ind.cora.*"):
        shutil.copy(path, raw)
    graph = Planetoid(folder, "Cora")[0]


class GAT(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = GATConv(graph.num_features, 8, heads=8, dropout=0.6)
        self.second = GATConv(64, 7, heads=1, dropout=0.6)

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        x = F.elu(self.first(F.dropout(x, 0.6, self.training), edges))
        return self.second(F.dropout(x, 0.6, self.training), edges)


torch.manual_seed(0)
model = ba.convert(
    GAT(), ba.Weibull(k=1.0, prior=ba.ContextualGamma(beta=1e-10, hidden=1, over="all"))
)  # BAM's, for Cora
optimizer = torch.optim.Adam(model.parameters(), lr=0.005, weight_decay=5e-4)
schedule = ba.schedules.sigmoid(0.1)
for epoch in range(arguments.epochs):
    model.train()
    with ba.record() as latents:
        logits = model(graph.x, graph.edge_index)
    nll = F.cross_entropy(logits[graph.train_mask], graph.y[graph.train_mask])
    # one graph is one example; BAM divides its KL by the number of edges, heads and layers
    loss = ba.elbo(nll[None], latents, kl_weight=schedule(epoch), kl_reduction="mean")
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if epoch % 20 == 19:
        print(f"epoch {epoch + 1}: nll {loss.nll:.3f}, kl {loss.local_kl:.2f}")

model.eval()
with torch.no_grad():
    right = (model(graph.x, graph.edge_index).argmax(-1) == graph.y)[graph.test_mask]
print(f"test accuracy of the point estimate {right.float().mean():.3f}")
with torch.no_grad(), ba.sampling():
    samples = torch.stack([model(graph.x, graph.edge_index) for _ in range(32)])[:, graph.test_mask]
prediction = ba.CategoricalPrediction(samples)
order = prediction.mutual_information.argsort()
right = (prediction.label == graph.y[graph.test_mask])[order].float()
half = len(right) // 2
print(f"test accuracy of the sampled mean: surer half {right[:half].mean():.3f}, other half {right[half:].mean():.3f}")
