"""Figures of the papers that are not tables: a file for each, or for several that are made together."""

from bayesattn.experiments.analysis.paper_figures import extremes, m5_constants, series, tag_shares, tails
from bayesattn.experiments.analysis.paper_figures.base import FIGURES, PaperFigure, Places

__all__ = ["FIGURES", "PaperFigure", "Places", "extremes", "m5_constants", "series", "tag_shares", "tails"]
