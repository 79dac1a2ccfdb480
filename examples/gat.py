"""A graph attention network of PyTorch Geometric on Cora, made Bayesian: which nodes is it unsure of?

    python examples/gat.py --epochs 100

Finds Cora's raw files in $BAYESATTN_DATA; without that, downloads them into the user's cache.
"""

import argparse

import torch
import torch.nn.functional as F
from torch_geometric.nn import GATConv

import bayesattn as ba
from bayesattn.experiments.data.planetoid import load_planetoid

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=100)
arguments = parser.parse_args()

graph = load_planetoid("cora")
x, edges, labels = graph.features.to_dense(), graph.edges, graph.labels


class GAT(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = GATConv(x.shape[1], 8, heads=8, dropout=0.6)
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
        logits = model(x, edges)
    nll = F.cross_entropy(logits[graph.train], labels[graph.train])
    # one graph is one example; BAM divides its KL by the number of edges, heads and layers
    loss = ba.elbo(nll[None], latents, kl_weight=schedule(epoch), kl_reduction="mean")
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if epoch % 20 == 19:
        print(f"epoch {epoch + 1}: nll {loss.nll:.3f}, kl {loss.local_kl:.2f}")

model.eval()
with torch.no_grad():
    right = (model(x, edges).argmax(-1) == labels)[graph.test]
print(f"test accuracy of the point estimate {right.float().mean():.3f}")
with torch.no_grad(), ba.sampling():
    samples = torch.stack([model(x, edges) for _ in range(32)])[:, graph.test]
prediction = ba.CategoricalPrediction(samples)
order = prediction.mutual_information.argsort()
right = (prediction.label == labels[graph.test])[order].float()
half = len(right) // 2
print(f"test accuracy of the sampled mean: surer half {right[:half].mean():.3f}, other half {right[half:].mean():.3f}")
