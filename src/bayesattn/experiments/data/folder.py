"""Where the data sets are."""

from __future__ import annotations

import os
from pathlib import Path


def data_folder(name: str) -> Path:
    """The folder of one data set: `name` inside $BAYESATTN_DATA, or inside `shared/data` of a folder above the current one."""
    given = os.environ.get("BAYESATTN_DATA")
    here = Path.cwd().resolve()
    candidates = [Path(given)] if given else [parent / "shared" / "data" for parent in (here, *here.parents)]
    for candidate in candidates:
        if (candidate / name).is_dir():
            return candidate / name
    looked = given or f"shared/data of {here} and of every folder above it"
    raise FileNotFoundError(
        f"The data set {name!r} was not found in {looked}: set BAYESATTN_DATA to the folder that holds it."
    )
