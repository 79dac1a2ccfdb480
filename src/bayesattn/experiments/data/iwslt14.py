"""IWSLT'14, talks, German to English, tokenised and in lower case. 7,282 pairs to validate, 6,750 to test; training data by hand."""

from __future__ import annotations

from bayesattn.experiments.data.files import DataFile
from bayesattn.experiments.data.parallel import ParallelFiles

_SITE = "https://raw.githubusercontent.com/harvardnlp/var-attn/ce2ac9a/data/iwslt14-de-en/"
_RECIPE = (
    "fairseq's examples/translation/prepare-iwslt14.sh, which writes it as iwslt14.tokenized.de-en/tmp/train.{language} "
    "(about 160,000 lines: tokenised, in lower case, before BPE)"
)


def _files(part: str, german: str | None, english: str | None) -> ParallelFiles:
    def file(language: str, sha256: str | None) -> DataFile:
        name = f"{part}.{language}"
        url = None if sha256 is None else _SITE + name
        return DataFile(f"iwslt14/{name}", sha256, url or _RECIPE.format(language=language), url)

    return ParallelFiles(file("de", german), file("en", english))


TRAIN = _files("train", None, None)
VALIDATION = _files(
    "valid",
    "b09d2ab5797dbf31f67313cc0df74850819556733f5871ceed5ef85ee796845d",
    "c685db703558e94a2ca9a22c4947e5f34edb946895d7fec571b1854c900a18d6",
)
TEST = _files(
    "test",
    "b899a137e81dc3e3c34f5a2cf16c09880ab33b8d22252483ff9c049b2a34e203",
    "1685cc2a0c169051b66957d7f56056341161dc4617a849b649e84cdac5b73e24",
)
