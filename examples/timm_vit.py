"""A timm vision transformer, trained on scikit-learn's digits, and its uncertainty on digits and on noise.

python examples/timm_vit.py --epochs 30
"""

import argparse

import timm
import torch
import torch.nn.functional as F

import bayesattn as ba
from bayesattn.experiments.data.digits import load_digits

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=30)
arguments = parser.parse_args()

torch.manual_seed(0)
model = timm.create_model(
    "vit_tiny_patch16_224", img_size=8, patch_size=2, in_chans=1, embed_dim=48, depth=3, num_heads=3, num_classes=10
)
ba.convert(model, ba.Weibull(k=10.0, prior=ba.ContextualGamma(beta=0.01)))

digits = load_digits()
loader = torch.utils.data.DataLoader(
    torch.utils.data.TensorDataset(digits.train_images, digits.train_labels), batch_size=64, shuffle=True
)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
schedule = ba.schedules.linear(arguments.epochs * len(loader))
step = 0
for epoch in range(arguments.epochs):
    model.train()
    for images, labels in loader:
        with ba.record() as latents:
            logits = model(images)
        loss = ba.elbo(F.cross_entropy(logits, labels, reduction="none"), latents, kl_weight=schedule(step))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
    print(f"epoch {epoch}: nll {loss.nll:.3f}, kl {loss.local_kl:.1f}")

prediction = ba.predict(model, digits.test_images, samples=32)
noise = ba.predict(model, torch.rand_like(digits.test_images), samples=32)
print(f"test accuracy {(prediction.label == digits.test_labels).float().mean():.3f}")
print(f"mean entropy: digits {prediction.entropy.mean():.3f}, noise {noise.entropy.mean():.3f}")
print(
    f"mean disagreement of the samples: digits {prediction.mutual_information.mean():.4f}, noise {noise.mutual_information.mean():.4f}"
)
