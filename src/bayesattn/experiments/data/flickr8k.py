"""Flickr8k (Hodosh et al. 2013): photographs with five captions each, with grid features in place of the images."""

from __future__ import annotations

from bayesattn.experiments.data.captions import Captions
from bayesattn.experiments.data.features import load_archive
from bayesattn.experiments.data.files import DataError, DataFile, read_text
from bayesattn.experiments.data.regions import Regions

_LISTS = "https://github.com/NinjaAadi/Image_Annotation, restricted to the images that have features"
CAPTIONS = DataFile(
    "flickr8k/Flickr8k.token.txt",
    "1e1f3a371ba1a1bf742e6930521c037e046b2bf3fcc2390ba8405e0301ed7689",
    "https://github.com/xiyan128/text_style_transfer_transformer (Flickr8k.token.txt)",
)
LISTS = {
    "train": DataFile(
        "flickr8k/Flickr_8k.trainImages.txt", "fb374e861458d34f4e26165799da27f34a2ea6b64d1b4ca03a08b09d704044b9", _LISTS
    ),
    "validation": DataFile(
        "flickr8k/Flickr_8k.devImages.txt", "9fe35686bb46accc1b32296139dd7d34e79dbaf7f19e08fdddf46510b75bdc00", _LISTS
    ),
    "test": DataFile(
        "flickr8k/Flickr_8k.testImages.txt", "14a451019c920dfca23d8d1fe483bc60f3024d909883bc16ee5a6faa6f2011d0", _LISTS
    ),
}
FEATURES = DataFile(
    "flickr8k/features.npz",
    "a722477b5f6c92755bd2660cfa053ad82d5979b4030ba7ac98fa2e80df849044",
    "the project's research data (EfficientNet-lite1 on Flickr8k's images, see docs/images.md)",
)
FILES = (CAPTIONS, *LISTS.values(), FEATURES)


def load_flickr8k() -> tuple[dict[str, Captions], Regions]:
    """The parts "train", "validation" and "test", and the images' regions. Captions lose their punctuation."""
    captions = _captions()
    parts = {}
    for part, file in LISTS.items():
        text, path = read_text(file)
        images = text.split()
        for number, image in enumerate(images, start=1):
            if image not in captions:
                raise DataError(
                    f"{path}, line {number}: {image[:60]} has no captions in {CAPTIONS.path}. {CAPTIONS.remedy()}"
                )
        parts[part] = Captions(images, [captions[image] for image in images])
    return parts, load_archive(FEATURES)


def _captions() -> dict[str, list[list[str]]]:
    captions, path = read_text(CAPTIONS)
    found: dict[str, list[list[str]]] = {}
    for number, line in enumerate(captions.splitlines(), start=1):
        name, tab, text = line.partition("\t")
        image, hash_sign, _ = name.rpartition("#")
        words = [word for word in text.lower().split() if any(letter.isalnum() for letter in word)]
        if not (tab and hash_sign and words):
            raise DataError(
                f"{path}, line {number} is not `image.jpg#number<TAB>caption`: {line[:60]!r}. {CAPTIONS.remedy()}"
            )
        found.setdefault(image, []).append(words)
    return found
