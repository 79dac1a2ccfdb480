"""Flickr8k: captions of photographs."""

from __future__ import annotations

from bayesattn.experiments.data import flickr8k
from bayesattn.experiments.data.captions import Captions
from bayesattn.experiments.data.flickr8k import load_flickr8k
from bayesattn.experiments.data.regions import Regions
from bayesattn.experiments.tasks.base import Training
from bayesattn.experiments.tasks.captioning import CaptionOptions, CaptionTask
from bayesattn.experiments.tasks.registered import TASKS


class Flickr8kTask(CaptionTask):
    """The official parts, restricted to the images that have features."""

    training = Training(epochs=20, samples=1, batch_size=64, learning_rate=1e-3)
    files = flickr8k.FILES

    def read(self) -> tuple[dict[str, Captions], Regions]:
        return load_flickr8k()


TASKS.add("flickr8k", "captions of photographs: Att2in", CaptionOptions(), Flickr8kTask)
