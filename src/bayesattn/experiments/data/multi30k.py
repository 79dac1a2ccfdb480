"""Multi30k, task 1: captions of photographs, German to English, untokenised. 29,000 / 1,014 / 1,000 pairs."""

from __future__ import annotations

from bayesattn.experiments.data.files import DataFile
from bayesattn.experiments.data.parallel import ParallelFiles

_SITE = "https://raw.githubusercontent.com/multi30k/dataset/a3d2e0d/data/task1/raw/"


def _files(part: str, german: str, english: str) -> ParallelFiles:
    def file(language: str, sha256: str) -> DataFile:
        name = f"{part}.{language}"
        return DataFile(f"multi30k/{name}", sha256, f"{_SITE}{name}.gz", f"{_SITE}{name}.gz")

    return ParallelFiles(file("de", german), file("en", english))


TRAIN = _files(
    "train",
    "2c2b73fd2b548fbcde3a875e0a78d6ee94d498bfdee6bd3eae3945779e9ddf72",
    "460a15fbd157e34a7a9957ee388c1ca247fe47af3ef25fb50442af6c274e0fc6",
)
VALIDATION = _files(
    "val",
    "660e09eb7e1da2f856ea13ee5ad3cf6d36b3d5b0b733c857e94c5747a3dfc660",
    "1f2a23d992769b5b3d209b0a10dd0b77c08cceb1f20dfb97ed0aafa49d107227",
)
TEST = _files(
    "test_2016_flickr",
    "4be6b5b3236b79c25475c6bb829800a7ce559e9ba7a1f6c2394fe4d40be46d16",
    "399a4382932c1aadd3ceb9bef1008d388a64c76d4ae4e9d4728c6f4301cac182",
)
