"""Weight-space inference: the weights of any network as random variables."""

from bayesattn.weight_space.concrete_dropout import ConcreteDropout, concrete_dropout
from bayesattn.weight_space.ensemble import Ensemble, ensemble
from bayesattn.weight_space.gaussian_process import GaussianProcessHead, fit_gp_head, gp_head
from bayesattn.weight_space.laplace import LaplacePosterior, laplace
from bayesattn.weight_space.laplace_file import load_laplace, save_laplace
from bayesattn.weight_space.laplace_head import LaplaceHead, laplace_head
from bayesattn.weight_space.mean_field import mean_field
from bayesattn.weight_space.packing import Packed, pack, packed_width
from bayesattn.weight_space.priors import (
    THESIS_PRIORS,
    WeightPrior,
    fitted_priors,
    load_priors,
    save_priors,
    thesis_priors,
)
from bayesattn.weight_space.selection import choose_layers
from bayesattn.weight_space.snapshots import snapshot_rate, snapshots, take_snapshot
from bayesattn.weight_space.swag import collect, swag
from bayesattn.weight_space.variational_head import VariationalHead, vbll_head

__all__ = [
    "THESIS_PRIORS",
    "ConcreteDropout",
    "Ensemble",
    "GaussianProcessHead",
    "LaplaceHead",
    "LaplacePosterior",
    "Packed",
    "VariationalHead",
    "WeightPrior",
    "choose_layers",
    "collect",
    "concrete_dropout",
    "ensemble",
    "fit_gp_head",
    "fitted_priors",
    "gp_head",
    "laplace",
    "laplace_head",
    "load_laplace",
    "load_priors",
    "mean_field",
    "pack",
    "packed_width",
    "save_laplace",
    "save_priors",
    "snapshot_rate",
    "snapshots",
    "swag",
    "take_snapshot",
    "thesis_priors",
    "vbll_head",
]
