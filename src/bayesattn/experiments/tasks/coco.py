"""COCO captions from the published files: the data of BAM's own table."""

from __future__ import annotations

from dataclasses import dataclass

from bayesattn.experiments.data.captions import Captions, read_karpathy
from bayesattn.experiments.data.features import load_regions
from bayesattn.experiments.data.published import path_of, published_files
from bayesattn.experiments.data.regions import Regions
from bayesattn.experiments.tasks.base import Training
from bayesattn.experiments.tasks.captioning import CaptionOptions, CaptionTask
from bayesattn.experiments.tasks.registered import TASKS


@dataclass(frozen=True)
class CocoOptions(CaptionOptions):
    """Words, the model's sizes (Att2in's), and how it is tested."""

    data: str = "coco"
    """Folder of the published files, or its name below $BAYESATTN_DATA: Karpathy's split as `split` names it, and in `features`
    bottom-up attention's .tsv files or one .npz for each image."""
    split: str = "dataset_coco.json"
    """Karpathy's split; dataset_flickr8k.json and dataset_flickr30k.json have the same format."""
    dim: int = 512
    noise: tuple[float, ...] = (5.0,)


class CocoTask(CaptionTask):
    """Trained on Karpathy's train and restval, tested on his test images."""

    training = Training(epochs=30, samples=1, batch_size=10, learning_rate=5e-4)

    def __init__(self, options: CocoOptions):
        super().__init__(options)
        self.files = published_files(
            options.data, (options.split,), "https://cs.stanford.edu/people/karpathy/deepimagesent/caption_datasets.zip"
        )

    def read(self) -> tuple[dict[str, Captions], Regions]:
        path = path_of(self.files[0])
        return read_karpathy(path), load_regions(path.parent / "features")


TASKS.add("coco", "captions of COCO's images from the published files (--data)", CocoOptions(), CocoTask)
