"""One training run, a sweep of runs, the store of results."""

from bayesattn.experiments.runs.config import RunConfig, configure
from bayesattn.experiments.runs.folder import RunFolder
from bayesattn.experiments.runs.single import LoadedRun, load_run, run

__all__ = ["LoadedRun", "RunConfig", "RunFolder", "configure", "load_run", "run"]
