"""Every posterior in every form, for the tests that must hold for all of them."""

from __future__ import annotations

import bayesattn as ba

MAX_LEN = 12

FORMS: dict[str, ba.Posterior] = {
    "softmax": ba.Softmax(),
    "weibull-fixed": ba.Weibull(k=2.0),
    "weibull-fixed-raw": ba.Weibull(k=2.0, kl_scores="raw"),
    "weibull-learnable": ba.Weibull(k=2.0, prior=ba.GammaPrior(0.5, 2.0, learnable=True)),
    "weibull-contextual": ba.Weibull(k=2.0, prior=ba.ContextualGamma(beta=0.5, hidden=3)),
    "weibull-contextual-paper": ba.Weibull(
        k=2.0, prior=ba.ContextualGamma(beta=0.5, hidden=3, alpha_scale="one"), kl_scores="raw"
    ),
    "lognormal-fixed": ba.LogNormal(sigma=0.5),
    "lognormal-fixed-raw": ba.LogNormal(sigma=0.5, kl_scores="raw"),
    "lognormal-learnable": ba.LogNormal(sigma=0.5, prior=ba.LogNormalPrior(0.0, 2.0, learnable=True)),
    "lognormal-contextual": ba.LogNormal(sigma=0.5, prior=ba.ContextualLogNormal(sigma=1.5, hidden=3)),
    "lognormal-contextual-paper": ba.LogNormal(
        sigma=0.5, prior=ba.ContextualLogNormal(sigma=1.5, hidden=3, location="share"), kl_scores="raw"
    ),
    "gaussian": ba.Gaussian(),
    "gaussian-dd": ba.Gaussian(data_dependent=True),
    "gaussian-thesis": ba.Gaussian.thesis(MAX_LEN),
    "gaussian-thesis-dd": ba.Gaussian.thesis(MAX_LEN, data_dependent=True),
    "dirichlet": ba.Dirichlet(),
    "dirichlet-dd": ba.Dirichlet(data_dependent=True),
    "dirichlet-simplex": ba.Dirichlet(kl_form="dirichlet"),
    "dirichlet-approximate": ba.Dirichlet(approximate=True),
    "dirichlet-approximate-dd": ba.Dirichlet(approximate=True, data_dependent=True),
    "dirichlet-thesis": ba.Dirichlet.thesis(MAX_LEN),
    "dirichlet-thesis-dd": ba.Dirichlet.thesis(MAX_LEN, data_dependent=True),
    "dirichlet-thesis-approximate": ba.Dirichlet.thesis(MAX_LEN, approximate=True),
}

EXTREMES: dict[str, ba.Posterior] = {
    **{f"weibull-k={k:g}": ba.Weibull(k=k) for k in (0.1, 1.0, 10.0, 100.0, 2000.0)},
    **{
        f"weibull-alpha={alpha:g}-beta={beta:g}": ba.Weibull(k=1.0, prior=ba.GammaPrior(alpha, beta), kl_scores=scores)
        for alpha, beta, scores in (
            (1e-15, 1e-10, "normalised"),
            (1e-15, 1e-10, "raw"),
            (1e-7, 1e-15, "raw"),
            (1e-15, 1e-15, "raw"),
            (1e4, 1e4, "raw"),
        )
    },
    **{
        f"weibull-contextual-beta={beta:g}": ba.Weibull(k=10.0, prior=ba.ContextualGamma(beta, 2), kl_scores=scores)
        for beta, scores in ((1e-15, "normalised"), (1e-10, "raw"), (1e-2, "raw"))
    },
    **{f"lognormal-sigma={sigma:g}": ba.LogNormal(sigma=sigma) for sigma in (1e-15, 1e-9, 1e-2, 1.0, 1e6, 1e15)},
    **{
        f"lognormal-sigma={sigma:g}-prior={prior:g}": ba.LogNormal(sigma, ba.LogNormalPrior(0.0, prior), scores)
        for sigma, prior, scores in (
            (1e-15, 1e15, "normalised"),
            (1e-6, 1e15, "raw"),
            (1e-2, 1e5, "raw"),
            (1e-15, 1e-15, "raw"),
            (1e15, 1e15, "raw"),
        )
    },
    "lognormal-contextual-1e15": ba.LogNormal(1e-15, ba.ContextualLogNormal(1e15, 1)),
    **{f"gaussian-prior={prior:g}": ba.Gaussian(prior_sigma=prior) for prior in (1e-15, 1e15)},
    **{f"gaussian-sigma={sigma:g}": ba.Gaussian(initial_sigma=sigma) for sigma in (1e-15, 1e15)},
    "gaussian-thesis": ba.Gaussian.thesis(MAX_LEN),
    "gaussian-thesis-dd": ba.Gaussian.thesis(MAX_LEN, data_dependent=True),
    **{
        f"dirichlet-a={a:g}": ba.Dirichlet(initial_sharpness=a, approximate=approximate, kl_form=form)
        for a, approximate, form in (
            (1e-15, False, "multi-gamma"),
            (1e-15, True, "multi-gamma"),
            (1e-3, False, "dirichlet"),
            (1e4, False, "multi-gamma"),
            (1e4, True, "dirichlet"),
        )
    },
    "dirichlet-prior=1e-15": ba.Dirichlet(prior_concentration=1e-15),
    "dirichlet-thesis": ba.Dirichlet.thesis(MAX_LEN),
    "dirichlet-thesis-dd": ba.Dirichlet.thesis(MAX_LEN, data_dependent=True),
    "dirichlet-thesis-approximate": ba.Dirichlet.thesis(MAX_LEN, approximate=True),
    "dirichlet-thesis-approximate-dd": ba.Dirichlet.thesis(MAX_LEN, data_dependent=True, approximate=True),
}
"""Every hyper-parameter value that the papers print, and those beyond that the issue of the core names."""
