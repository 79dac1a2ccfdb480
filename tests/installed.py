"""Run by `make package` in an environment that has the wheel and torch alone: what the core promises there."""

from __future__ import annotations

import importlib.util
from importlib import metadata, resources
from pathlib import Path

import torch

import bayesattn as ba


def main() -> None:
    assert Path(ba.__file__).parts[-3] == "site-packages", f"not the installed package: {ba.__file__}"
    others = [name for name in ("numpy", "scipy", "transformers", "rich", "tyro") if importlib.util.find_spec(name)]
    assert not others, f"torch should be alone here: {others}"
    assert metadata.version("bayesattn") == ba.__version__
    sources = {path.name for path in resources.files("bayesattn.kernels").joinpath("source").iterdir()}
    assert "attention.cpp" in sources, f"the kernels' source is not in the wheel: {sources}"

    torch.manual_seed(0)
    encoder = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    model = torch.nn.Sequential(encoder, torch.nn.Flatten(), torch.nn.Linear(64 * 16, 3))
    ba.convert(model, ba.Weibull(k=10.0, prior=ba.ContextualGamma(beta=0.01)))
    x, y = torch.randn(32, 64, 16), torch.randint(3, (32,))
    with ba.record() as latents:
        nll = torch.nn.functional.cross_entropy(model(x), y, reduction="none")
    ba.elbo(nll, latents, kl_weight=0.1, kl_reduction="mean").backward()
    assert latents.local_kl.shape == (32,)
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters() if p.requires_grad)
    answer = ba.calibrate(model, (x, y), samples=4).predict(x)
    assert torch.allclose(answer.mean.sum(-1), torch.ones(32), atol=1e-5)
    print(f"bayesattn {ba.__version__} works with torch {torch.__version__} alone.")


if __name__ == "__main__":
    main()
