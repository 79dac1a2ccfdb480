"""What can be explored one input at a time: a saved text classifier, or a run on images."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bayesattn.experiments.report import sections
from bayesattn.experiments.report.runs_page import DRAWS
from bayesattn.experiments.report.saved_classifier import encoded, explored_text, saved_classifier
from bayesattn.experiments.runs import LoadedRun, RunFolder, load_run
from bayesattn.experiments.tasks.images import ImageTask
from bayesattn.experiments.tasks.portrait import Portrait, words
from bayesattn.inspection import attention_weights
from bayesattn.prediction.calibration import CalibratedModel, load_calibration
from bayesattn.prediction.calling import call
from bayesattn.prediction.likelihood import likelihood_of
from bayesattn.prediction.predictions import CategoricalPrediction
from bayesattn.prediction.sampled import predict
from bayesattn.scopes.watching import watch
from bayesattn.support.annotations import Float
from bayesattn.weight_space import Ensemble

SAMPLES = 32
"""Sampled predictions of a saved model, unless another number is chosen."""
SEED = 0
"""Of all noise: the same input is answered in the same way."""
LARGEST = 10_000_000
"""Weights that one page is given at most: 27 MB of text."""
FEWEST = 4
"""Draws of the weights at least; if they do not fit, none are shown."""
TEST = "test set"


@dataclass(frozen=True)
class Answered:
    """What a model says of one input, and what it looked at."""

    portrait: Portrait
    prediction: CategoricalPrediction
    explored: sections.Explored | None
    remarks: tuple[str, ...] = ()


class Explorable:
    """A model that is asked one question at a time."""

    def __init__(self, path: Path, network: nn.Module, attentive: nn.Module, classes: tuple[str, ...]):
        self.title = path.resolve().name
        self.classes = classes
        self.samples = SAMPLES
        self.why_fixed = ""
        """Why the number of samples cannot be chosen; empty: it can."""
        self.calibrated: CalibratedModel | None = None
        self._attentive = attentive
        self._one_at_a_time = threading.Lock()  # the seed of torch's own generator is everyone's
        if (path / "calibration.pt").is_file():
            self.calibrated = load_calibration(network, path)
            settings = self.calibrated.settings
            if settings.likelihood != "categorical":
                raise ValueError(
                    f"model={path}: its calibration.pt is of {settings.likelihood} outputs, and explore shows classes."
                )
            self.samples = settings.samples
            self.why_fixed = "the calibration is for so many" if settings.random else "nothing in it is random"

    def _draws(self, inputs: Any, samples: int) -> tuple[int, str]:
        """How many draws of the attention weights can be shown, and in words why there are none."""
        with torch.no_grad(), watch() as seen:
            call(self._attentive, inputs)
        weights = sum(each.weights.numel() for each in seen)
        if not weights:
            return 0, "Its attention is not random, so there is nothing to explore in it."
        draws = min(max(samples, FEWEST), DRAWS, LARGEST // weights - 3)  # mean, deviation and prior are sent too
        if draws < FEWEST:
            heads = sum(each.weights.shape[1] for each in seen)
            length = seen[0].weights.shape[-1]
            return 0, f"The attention of {length} tokens in {heads} heads is too much for a page: take a shorter text."
        return draws, ""


class TextModel(Explorable):
    """A saved classifier of texts."""

    def __init__(self, path: Path):
        self.model, self.tokenizer = saved_classifier(path)
        config = self.model.config
        likelihood = likelihood_of(self.model, torch.empty(1, config.num_labels))
        if likelihood != "categorical":
            raise ValueError(
                f"model={path} has outputs that are {likelihood} (config.problem_type={config.problem_type!r}, "
                f"num_labels={config.num_labels}): explore shows models that choose one of several classes."
            )
        names = tuple(str(config.id2label[index]) for index in range(config.num_labels))
        super().__init__(path, self.model, self.model, names)

    def look(self, text: str, samples: int) -> Answered:
        """At one text."""
        if not text.strip():
            raise ValueError("Type a sentence.")
        inputs = encoded(self.tokenizer, [text])
        with self._one_at_a_time:
            generator = torch.Generator().manual_seed(SEED)
            if self.calibrated is not None:
                prediction = self.calibrated.predict(inputs, generator=generator)
            else:
                prediction = predict(self.model, inputs, samples, generator=generator)
            draws, remark = self._draws(inputs, samples)
            explored = explored_text(self.model, self.tokenizer, text, draws) if draws else None
        remarks = [remark] if remark else []
        whole, read = len(self.tokenizer(text, verbose=False)["input_ids"]), inputs["input_ids"].shape[1]
        if whole > read:
            remarks.append(f"Only the first {read} of {whole} tokens were read: the model takes no more.")
        return Answered(words(text.split()), prediction, explored, tuple(remarks))


class ImageRun(Explorable):
    """A finished run of an image task."""

    def __init__(self, path: Path):
        self.run: LoadedRun = load_run(path)
        task, models = self.run.task, self.run.models
        if not isinstance(task, ImageTask):
            raise ValueError(
                f"model={path} is a run of {self.run.config.task}, whose inputs can be neither typed nor dropped: take a run of an "
                "image task (digits, mnist, fashion-mnist, cifar10), or a text classifier that save_pretrained wrote."
            )
        self.task = task
        network = models[0] if len(models) == 1 else Ensemble(models)
        super().__init__(path, network, models[0], task.label_names)
        if self.calibrated is None:
            self.samples = self.run.config.training.samples
            if not self.run.method.samples:
                self.samples = len(models)
                self.why_fixed = f"{self.run.config.method} decides it"
        images, self._labels = task.load().test
        self.sets: dict[str, Tensor] = {TEST: images, **task.out_of_distribution(images)}

    def example(self, name: str, number: int) -> tuple[Float[Tensor, "1 channels height width"], tuple[str, ...]]:
        """An image of one of the sets, counted from 1, and what is right."""
        images = self.sets[name]
        if not 1 <= number <= len(images):
            raise ValueError(f"There is no image {number} in {name}: take 1 to {len(images)}.")
        right = f"Right is {self.classes[int(self._labels[number - 1])]}." if name == TEST else f"From outside: {name}."
        return images[number - 1 : number], (right,)

    def fitted(self, picture: Any, inverted: bool = False) -> Float[Tensor, "1 channels height width"]:
        """A PIL image as the task has them: the square in its middle, resized, in grey or in colours, in [0, 1]."""
        from PIL import Image, ImageOps

        size, channels = self.task.image_size, self.task.channels
        square = ImageOps.fit(picture.convert("L" if channels == 1 else "RGB"), (size, size), Image.Resampling.LANCZOS)
        values = torch.tensor(list(square.tobytes())).view(size, size, channels).permute(2, 0, 1).unsqueeze(0) / 255
        return 1 - values if inverted else values

    def look(
        self, image: Float[Tensor, "1 channels height width"], samples: int, remarks: tuple[str, ...] = ()
    ) -> Answered:
        """At one image."""
        (portrait,) = self.task.portraits(image)
        with self._one_at_a_time:
            if self.calibrated is not None:
                prediction = self.calibrated.predict(image, generator=torch.Generator().manual_seed(SEED))
            else:
                torch.manual_seed(SEED)
                prediction = self.run.predict(image, samples)
            draws, remark = self._draws(image, samples)
            found: list[sections.Explored] = []
            if draws:
                generator = torch.Generator().manual_seed(SEED)
                layers = attention_weights(self._attentive, image, draws, generator=generator)
                found = sections.explored(["image"], [portrait], layers)
        if draws and len(self.run.models) > 1:
            remark = f"The attention shown is that of the first of {len(self.run.models)} members."
        return Answered(portrait, prediction, found[0] if found else None, (*remarks, *([remark] if remark else [])))


def explorable(path: Path) -> TextModel | ImageRun:
    """What is in this folder, ready to be asked."""
    if not path.is_dir():
        raise FileNotFoundError(
            f"model={path} is no folder: name the folder of a finished run, or one that save_pretrained of a converted text "
            "classifier wrote."
        )
    if (path / "result.json").is_file():
        return ImageRun(path)
    config = RunFolder(path).config()
    if config is None or "model_type" not in config:
        raise ValueError(
            f"model={path} holds neither a finished run (result.json) nor a saved model (config.json with model_type): let "
            f"`bayesattn run` finish it, or write the model there with model.save_pretrained({str(path)!r})."
        )
    return TextModel(path)
