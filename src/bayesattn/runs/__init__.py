"""One training run, a sweep of runs, the store of results."""

from bayesattn.runs.config import RunConfig, configure
from bayesattn.runs.folder import RunFolder
from bayesattn.runs.single import LoadedRun, load_run, run

__all__ = ["LoadedRun", "RunConfig", "RunFolder", "configure", "load_run", "run"]
