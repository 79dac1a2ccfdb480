"""Ambiguous-MNIST: images between two digits, which people too would call by two names (Mukhoti et al. 2023).

The published file is used where a user has it (`ambiguous_mnist/amnist_samples.pt` in the data folder). Else such images are made
here, the same way: a small variational autoencoder is trained on MNIST, points between the codes of two digits of different
classes are decoded, and an ensemble of classifiers says which are ambiguous: two classes share nearly all of the probability
and the members agree on that. The making takes a minute or so, is decided by a seed, and is kept in the cache.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save
from torch import Tensor, nn

from bayesattn import metrics
from bayesattn.experiments.data.files import DataError, data_folder
from bayesattn.experiments.data.idx import MNIST_TRAIN, load_images
from bayesattn.support import checks
from bayesattn.support.annotations import Float, Shaped
from bayesattn.support.files import user_cache, write_atomically

PUBLISHED = "ambiguous_mnist/amnist_samples.pt"
PUBLISHED_TRAIN = 6000
"""The published file has its training images first."""
CODE = 10
MEMBERS = 3


def load_ambiguous_mnist(count: int = 6000, seed: int = 0) -> Float[Tensor, "n 1 28 28"]:
    """`count` ambiguous images in [0, 1]: the published test images if they are found, else made ones."""
    checks.whole("count", count)
    published = data_folder() / PUBLISHED
    if published.is_file():
        return read_published(published)[:count]
    path = user_cache() / f"ambiguous_mnist-{count}-seed{seed}.safetensors"
    if not path.exists():
        images, labels = load_images(MNIST_TRAIN)
        made = make_ambiguous(images, labels, count, seed)
        write_atomically(path, save({"images": (made * 255).round().to(torch.uint8)}))
    return load_file(path)["images"].float() / 255.0


def read_published(path: Path) -> Float[Tensor, "n 1 28 28"]:
    """The test images of the published file."""
    remedy = "Get it from the releases of github.com/BlackHC/ddu_dirty_mnist, or remove it: then the images are made."
    try:
        samples = torch.load(path, map_location="cpu", weights_only=True)
    except Exception:  # torch.load raises whatever the damage makes it meet, and advises to switch its safety off
        raise DataError(f"{path} is damaged: it does not hold a tensor. {remedy}") from None
    if not isinstance(samples, Tensor) or samples.dim() != 4 or tuple(samples.shape[1:]) != (1, 28, 28):
        found = tuple(samples.shape) if isinstance(samples, Tensor) else type(samples).__name__
        raise DataError(f"{path} does not hold images [n, 1, 28, 28] but {found}. {remedy}")
    if len(samples) <= PUBLISHED_TRAIN:
        raise DataError(f"{path} holds {len(samples)} images, the first {PUBLISHED_TRAIN} are for training. {remedy}")
    return samples[PUBLISHED_TRAIN:].float().clamp(0, 1)


def make_ambiguous(
    images: Float[Tensor, "n 1 height width"],
    labels: Shaped[Tensor, " n"],
    count: int,
    seed: int,
    epochs: int = 6,
) -> Float[Tensor, "count 1 height width"]:
    """Decode between the codes of images of different classes, keep what an ensemble finds ambiguous."""
    shape = images.shape[1:]
    flat = images.flatten(1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        encoder, decoder = _autoencoder(flat, epochs)
        with torch.no_grad():
            codes = torch.cat([encoder(part)[:, :CODE] for part in flat.split(4096)])
            decoded = torch.cat([decoder(part).sigmoid() for part in codes.split(4096)])
        # the members also learn decoded images: else they would find every decoded image strange, not ambiguous
        classifiers = [_classifier(torch.cat([flat, decoded]), labels.repeat(2), epochs) for _ in range(MEMBERS)]
        kept: list[Tensor] = []
        found = 0
        for _ in range(200):
            candidates = _between(codes, labels, decoder, 4096)
            kept.append(candidates[_ambiguous(candidates, classifiers)])
            found += len(kept[-1])
            if found >= count:
                return torch.cat(kept)[:count].view(count, *shape)
    raise RuntimeError(f"Only {found} of {count} ambiguous images were found: train longer (epochs={epochs}).")


@torch.no_grad()
def _between(codes: Tensor, labels: Tensor, decoder: nn.Module, count: int) -> Tensor:
    """Decoded points between the codes of random pairs of different classes."""
    first, second = torch.randint(len(codes), (2, count))
    different = labels[first] != labels[second]
    first, second = first[different], second[different]
    share = 0.3 + 0.4 * torch.rand(len(first), 1)
    return decoder(share * codes[first] + (1 - share) * codes[second]).sigmoid()


@torch.no_grad()
def _ambiguous(images: Tensor, classifiers: list[nn.Module]) -> Tensor:
    """Two classes have at least a quarter each and nearly all together, and the members hardly differ."""
    probabilities = torch.stack([classifier(images).softmax(-1) for classifier in classifiers])
    first, second = probabilities.mean(0).topk(2, -1).values.unbind(-1)
    agreed = metrics.mutual_information(probabilities) < 0.1
    return (second > 0.25) & (first + second > 0.9) & agreed


def _autoencoder(images: Tensor, epochs: int) -> tuple[nn.Module, nn.Module]:
    width = images.shape[1]
    encoder = nn.Sequential(nn.Linear(width, 256), nn.GELU(), nn.Linear(256, 2 * CODE))
    decoder = nn.Sequential(nn.Linear(CODE, 256), nn.GELU(), nn.Linear(256, width))

    def loss(index: Tensor) -> Tensor:
        """The negative ELBO of a Gaussian code and independent pixels."""
        mean, log_scale = encoder(images[index]).chunk(2, -1)
        logits = decoder(mean + log_scale.exp() * torch.randn_like(mean))
        pixels = F.binary_cross_entropy_with_logits(logits, images[index], reduction="none").sum(1)
        kl = 0.5 * (mean.square() + (2 * log_scale).exp() - 1) - log_scale
        return (pixels + kl.sum(1)).mean()

    _train([*encoder.parameters(), *decoder.parameters()], loss, len(images), epochs)
    return encoder, decoder


def _classifier(images: Tensor, labels: Tensor, epochs: int) -> nn.Module:
    model = nn.Sequential(nn.Linear(images.shape[1], 128), nn.GELU(), nn.Linear(128, int(labels.max()) + 1))

    def loss(index: Tensor) -> Tensor:
        return F.cross_entropy(model(images[index]), labels[index])

    _train(list(model.parameters()), loss, len(images), max(1, epochs // 3))
    return model


def _train(parameters: list[nn.Parameter], loss: Callable[[Tensor], Tensor], size: int, epochs: int) -> None:
    optimiser = torch.optim.Adam(parameters, lr=2e-3)
    steps = epochs * math.ceil(size / 128)
    schedule = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.05, total_iters=steps)
    for _ in range(epochs):
        for index in torch.randperm(size).split(128):
            optimiser.zero_grad()
            loss(index).backward()
            optimiser.step()
            schedule.step()
