"""What works with which architecture of transformers: one small random model of each, each in a process of its own.

    python benchmarks/support_matrix.py run [--only bert llama] [--compile] [--again]
    python benchmarks/support_matrix.py render

`run` keeps each result at once in results/support_matrix.json and goes on where it was; `render` writes docs/support-matrix.md.
What a column means is in the docstrings of `COLUMNS`. An entry is "right"; "refused: " and the words of the error; "not applicable"; or
"WRONG: " and what was wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import json
import multiprocessing
import os
import platform
import subprocess
import tempfile
import textwrap
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from small_models import VOCABULARY, SmallModel, all_models
from torch import Tensor

import bayesattn as ba
from bayesattn.huggingface import from_pretrained

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "support_matrix.json"
PAGE = ROOT / "docs" / "support-matrix.md"
RIGHT, NOT_APPLICABLE = "right", "not applicable"
SECONDS = 300
NOISY = ba.Weibull(k=5.0, prior=ba.ContextualGamma(beta=1.0))


class Wrong(Exception):
    """What a column found to be wrong."""


class NotApplicable(Exception):
    """The model itself, unconverted, cannot do this."""


class Trial:
    """One architecture: the model as it was, and its inputs."""

    def __init__(self, small: SmallModel):
        self.small = small
        self.original: Any = small.build()
        with contextlib.suppress(Exception):  # it may have one implementation
            self.original.set_attn_implementation("eager")
        self.inputs = small.inputs(self.original)

    def converted(self, posterior: ba.Posterior) -> Any:
        return ba.convert(self.small.build(), posterior)

    def output(self, model: Any, inputs: dict[str, Any] | None = None, seed: int | None = None) -> Tensor:
        """The main output; with a seed, with sampled attention. Random parts of the model itself (ViT-MAE) are the same every time."""
        torch.manual_seed(3 if seed is None else seed)
        with torch.no_grad():
            if seed is None:
                return first_tensor(model(**(inputs or self.inputs)))
            with ba.sampling():
                return first_tensor(model(**(inputs or self.inputs)))

    def real(self, output: Tensor) -> Tensor:
        """Without the positions that are padding."""
        mask = self.inputs.get("decoder_attention_mask", self.inputs.get("attention_mask"))
        return output[mask.bool()] if mask is not None and output.shape[:2] == mask.shape else output

    def alone(self, index: int) -> dict[str, Any]:
        """One example, without its padding."""
        alone = {name: value[index : index + 1] for name, value in self.inputs.items()}
        for prefix in ("", "decoder_"):
            mask = alone.get(f"{prefix}attention_mask")
            if mask is not None:
                length = int(mask.sum())
                for name in [name for name in alone if name.startswith("decoder_") == bool(prefix)]:
                    if name != "pixel_values":
                        alone[name] = alone[name][:, :length]
        return alone


def first_tensor(output: Any) -> Tensor:
    for name in ("logits", "logits_per_text", "last_hidden_state"):
        if getattr(output, name, None) is not None:
            return getattr(output, name)
    return next(value for value in output.values() if isinstance(value, Tensor) and value.dim())


def same(name: str, actual: Tensor, expected: Tensor, tolerance: float = 1e-5) -> None:
    if not torch.isfinite(expected).all():
        raise NotApplicable("the model's own output is not finite")
    distance = float((actual - expected).abs().max() / expected.abs().max().clamp_min(1.0))
    if not distance <= tolerance:
        raise Wrong(f"{name}: differs by {distance:.1e}")


def equal(trial: Trial) -> None:
    """With `Softmax()` the outputs are those of the model's eager attention (1e-5), with padding and without masks; every
    attention layer that runs is converted and ran through ours; and `revert` gives the model back."""
    expected = trial.real(trial.output(trial.original))
    model = trial.converted(ba.Softmax())
    left = [layer for layer in ba.summary(model).layers if layer.state != "converted"]
    if left:
        raise Wrong(f"{len(left)} attention layers not converted, such as {left[0]}")
    posteriors = {module: name for name, module in model.named_modules() if isinstance(module, ba.Posterior)}
    ran: set[str] = set()
    hooks = [
        model.get_submodule(name.rpartition(".")[0]).register_forward_hook(
            lambda *call, name=name: ran.add(name) or None
        )
        for name in posteriors.values()
    ]
    with ba.record() as latents:
        same("Softmax", trial.real(trial.output(model)), expected)
    for hook in hooks:
        hook.remove()
    alone = trial.alone(0)
    without_masks = {name: value for name, value in alone.items() if not name.endswith("attention_mask")}
    for name, given in (("alone", alone), ("without masks", without_masks)):
        same(f"Softmax, {name}", trial.output(model, given), trial.output(trial.original, given))
    recorded = {posteriors[term.source] for term in latents.local_terms}
    if recorded != ran or not ran:
        raise Wrong(f"{len(ran)} layers ran, {len(recorded)} of them through Bayesian attention")
    ba.revert(model)
    same("reverted", trial.real(trial.output(model)), expected)


def predict(trial: Trial) -> None:
    """`ba.predict` gives finite samples that differ; what is padding, and for decoders what comes later, changes nothing (1e-6)."""
    model = trial.converted(NOISY)
    inputs = dict(trial.inputs)
    torch.manual_seed(0)
    prediction = ba.predict(model, inputs, samples=3, likelihood="values", output=first_tensor)
    samples = prediction.samples
    if not torch.isfinite(samples).all():
        raise Wrong("samples are not finite")
    if torch.equal(samples[0], samples[1]):
        raise Wrong("samples are the same")
    once = trial.real(trial.output(model, seed=1))
    if not torch.equal(once, trial.real(trial.output(model, seed=1))):
        raise Wrong("the same seed gives another output")
    plain = trial.real(trial.output(trial.original))
    for ids, mask in (("input_ids", "attention_mask"), ("decoder_input_ids", "decoder_attention_mask")):
        if ids not in inputs or mask not in inputs:
            continue
        changed = {**inputs, ids: inputs[ids].masked_fill(inputs[mask] == 0, VOCABULARY - 3)}
        if torch.equal(
            trial.real(trial.output(trial.original, changed)), plain
        ):  # else the model itself looks at padding
            same("padding changed", trial.real(trial.output(model, changed, seed=1)), once, 1e-6)
    ids = {"decoder": "input_ids", "seq2seq": "decoder_input_ids"}.get(trial.small.kind)
    if ids is not None:
        early = {name: value for name, value in inputs.items() if name != ids.replace("input_ids", "attention_mask")}
        later = {**early, ids: early[ids].clone()}
        later[ids][:, 4:] = VOCABULARY - 3
        if torch.equal(*(trial.output(trial.original, given)[:, :4] for given in (early, later))):
            same("later tokens changed", *(trial.output(model, given, seed=1)[:, :4] for given in (later, early)), 1e-6)


def train(trial: Trial) -> str | None:
    """The KL of each example is finite and is that of the example alone, without its padding, and of as many weights; the negative
    ELBO has finite gradients for the model and for the contextual prior of every layer that ran."""
    model = trial.converted(NOISY)
    torch.manual_seed(3)
    with torch.no_grad(), ba.record() as together:
        model(**trial.inputs)
    kl = together.local_kl
    if kl.shape != (2,) or not torch.isfinite(kl).all() or not (kl > 0).all():
        raise Wrong(f"the KL is {kl.tolist()}")
    remark = None
    for index in range(2):
        given = trial.alone(index)
        torch.manual_seed(3)
        with torch.no_grad(), ba.record() as alone:
            model(**given)
        counts = [
            torch.stack([term.elements[i] for term in part.local_terms]).sum()
            for part, i in ((alone, 0), (together, index))
        ]
        same(f"latents of example {index} alone", *counts, 0.0)
        if index and not _same_without_padding(trial, given, index):
            remark = (
                "padded example not compared with itself alone: the model's own outputs differ, or mix the examples"
            )
            continue
        same(f"KL of example {index} alone", alone.local_kl, kl[index : index + 1], 1e-4)
    model.train()
    torch.manual_seed(4)
    with ba.record() as latents:
        output = first_tensor(model(**trial.inputs))
    ba.elbo(output.flatten(1).square().mean(1), latents, kl_weight=1e-3).backward()
    sources = {id(term.source) for term in latents.local_terms}
    for name, module in model.named_modules():
        if id(module) in sources:
            gradient = module.prior.network.inner.weight.grad
            if gradient is None or not gradient.abs().max() > 0:
                raise Wrong(f"{name}: no gradient for the prior")
    for name, weight in model.named_parameters():
        if weight.grad is not None and not torch.isfinite(weight.grad).all():
            raise Wrong(f"{name}: the gradient is not finite")
    return remark


def _same_without_padding(trial: Trial, given: dict[str, Any], index: int) -> bool:
    """Whether the unconverted model gives a padded example what it gives the example alone, in its last hidden states."""

    def outputs(inputs: dict[str, Any]) -> list[Tensor]:
        torch.manual_seed(3)
        with torch.no_grad():
            output = trial.original(**inputs, output_hidden_states=True)
        named = (getattr(output, name, None) for name in ("hidden_states", "decoder_hidden_states"))
        of_parts = (getattr(output, name, None) for name in ("text_model_output", "vision_model_output"))
        states = [each[-1] for each in named if each] + [
            part.last_hidden_state for part in of_parts if part is not None
        ]
        return states or [first_tensor(output)]

    try:
        alone, padded = outputs(given), outputs(trial.inputs)
    except Exception:
        return False
    for one, other in zip(alone, padded, strict=True):
        other = other[index : index + 1]
        other = other[:, : one.shape[1]] if other.dim() > 1 else other
        if one.shape != other.shape or not (one - other).abs().max() <= 1e-5 * one.abs().max().clamp_min(1.0):
            return False
    return True


def generate(trial: Trial) -> None:
    """Greedy generation with `Softmax()` is the original's token for token, on padded texts; `ba.generate` runs and is finite."""
    if trial.small.kind not in ("decoder", "seq2seq"):
        raise NotApplicable("it does not generate")
    inputs = {name: value for name, value in trial.inputs.items() if not name.startswith("decoder")}
    if trial.small.kind == "decoder":  # padded on the left
        inputs = {name: value.flip(1) for name, value in inputs.items()}
    settings: dict[str, Any] = {"max_new_tokens": 6, "num_beams": 1, "eos_token_id": None}
    if trial.small.kind == "seq2seq":
        settings["decoder_start_token_id"] = 1
    try:
        expected = trial.original.generate(**inputs, **settings, do_sample=False)
    except Exception as problem:
        raise NotApplicable(f"the model itself does not: {problem}") from problem
    tokens = trial.converted(ba.Softmax()).generate(**inputs, **settings, do_sample=False)
    if not torch.equal(tokens, expected):
        raise Wrong("other tokens than the original's")
    generation = ba.generate(trial.converted(NOISY), **inputs, samples=3, **{**settings, "max_new_tokens": 4})
    if not torch.isfinite(generation.entropy).all() or not torch.isfinite(generation.mutual_information).all():
        raise Wrong("ba.generate: numbers that are not finite")


def save(trial: Trial) -> None:
    """What `save_pretrained` wrote, `bayesattn.huggingface.from_pretrained` reads: the same sampled outputs and KL; a plain
    `from_pretrained` of the folder is the original."""
    model = trial.converted(NOISY)
    with tempfile.TemporaryDirectory() as folder:
        try:
            trial.original.save_pretrained(folder)
            again = trial.output(type(trial.original).from_pretrained(folder))
        except Exception as problem:
            raise NotApplicable(f"the model itself does not: {problem}") from problem
        if not torch.allclose(trial.real(again), trial.real(trial.output(trial.original)), rtol=1e-4, atol=1e-4):
            raise NotApplicable("the model itself is another after transformers has saved and loaded it")
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        loaded = from_pretrained(type(model), folder)
        same("loaded", trial.output(loaded, seed=2), trial.output(model, seed=2), 1e-6)
        plain = type(model).from_pretrained(folder)
        same("plain", trial.real(trial.output(plain)), trial.real(trial.output(trial.original)))


def compiled(trial: Trial) -> str | None:
    """`torch.compile` (backend aot_eager) gives the same sampled outputs and KL, when it compiles and when it runs what it
    compiled."""
    remark = None
    try:
        if not _draws_as_compiled(trial):
            remark = (
                "compiled, the model itself draws other random numbers (code whose result nobody reads is left out), so the noise "
                "has a generator of its own"
            )
    except Exception as problem:
        raise NotApplicable(f"the model itself does not: {problem}") from problem
    torch._dynamo.reset()
    model = trial.converted(NOISY)
    in_graphs = torch.compile(model, backend="aot_eager")
    results = []
    for function in (model, in_graphs, in_graphs):
        torch.manual_seed(1)
        own = None if remark is None else torch.Generator().manual_seed(1)
        with torch.no_grad(), ba.record() as latents, ba.sampling(generator=own):
            results.append((first_tensor(function(**trial.inputs)), latents.local_kl))
    expected, *found = results
    for call, (output, kl) in zip(("", ", second call"), found, strict=True):
        same(f"outputs{call}", output, expected[0], 1e-4)
        same(f"KL{call}", kl, expected[1], 1e-4)
    return remark


def _draws_as_compiled(trial: Trial) -> bool:
    """Whether the unconverted model takes the same random numbers from torch's generator, compiled or not."""
    states = []
    for function in (trial.original, torch.compile(copy.deepcopy(trial.original), backend="aot_eager")):
        torch.manual_seed(1)
        with torch.no_grad():
            function(**trial.inputs)
        states.append(torch.get_rng_state())
    return torch.equal(*states)


COLUMNS: dict[str, Callable[[Trial], str | None]] = {
    "equal": equal,
    "predict": predict,
    "train": train,
    "generate": generate,
    "save and load": save,
    "compile": compiled,
}


def outcome(column: Callable[[Trial], str | None], trial: Trial) -> str:
    """An entry of the matrix; a column may return a remark."""
    try:
        remark = column(trial)
    except NotApplicable as reason:
        return f"{NOT_APPLICABLE}: {_words(reason)}"
    except Wrong as fault:
        return f"WRONG: {fault}"
    except Exception as problem:
        here = Path(ba.__file__).parent
        frames = traceback.extract_tb(problem.__traceback__)
        is_ours = Path(frames[-1].filename).is_relative_to(here)
        return f"{'refused' if is_ours else f'fails: {type(problem).__name__}'}: {_words(problem)}"
    return RIGHT if remark is None else f"{RIGHT}: {remark}"


def _words(problem: Exception) -> str:
    return " ".join(str(problem).partition("from user code:")[0].split())[:900]  # after that, paths of this machine


def try_out(small: SmallModel, columns: list[str], queue: Any) -> None:
    """In a process of its own."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    trial = Trial(small)
    queue.put(("class", type(trial.original).__name__))
    for name in columns:
        queue.put((name, outcome(COLUMNS[name], trial)))


def run(names: list[str], with_compile: bool, again: bool) -> None:
    kept: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"architectures": {}}
    columns = [name for name in COLUMNS if with_compile or name != "compile"]
    commit = _git("rev-parse", "--short", "HEAD")  # of the code that is imported now
    context = multiprocessing.get_context("fork")  # what is imported already serves all
    for small in all_models():
        earlier = kept["architectures"].get(small.name, {})
        before = earlier.get("columns", {})
        waiting = [name for name in columns if again or name not in before]
        if (names and small.name not in names) or not waiting:
            continue
        queue: Any = context.Queue()
        process = context.Process(target=try_out, args=(small, waiting, queue))
        process.start()
        commits = {**earlier.get("commits", {}), **dict.fromkeys(waiting, commit)}
        entry: dict[str, Any] = {"kind": small.kind, "class": "", "columns": dict(before), "commits": commits}
        answered: set[str] = set()
        for _ in range(len(waiting) + 1):
            try:
                name, words = queue.get(timeout=SECONDS)
            except Exception:
                break
            if name == "class":
                entry["class"] = words
            else:
                entry["columns"][name] = words
                answered.add(name)
        process.terminate()
        process.join()
        for name in waiting:
            if name not in answered:
                entry["columns"][name] = f"fails: it ended, or took more than {SECONDS} s"
        kept["architectures"][small.name] = entry
        kept.update(
            transformers=transformers.__version__,
            torch=torch.__version__,
            machine=f"{platform.machine()}, one thread",
        )
        partial = RESULTS.with_suffix(".partial")
        partial.write_text(json.dumps(kept, indent=1) + "\n")
        os.replace(partial, RESULTS)
        print(small.name, " | ".join(words[:160] for words in entry["columns"].values()), flush=True)


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("run", "render"))
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--again", action="store_true", help="also what there is a result of")
    arguments = parser.parse_args()
    if arguments.command == "run":
        run(arguments.only, arguments.compile, arguments.again)
    else:
        PAGE.write_text(page(json.loads(RESULTS.read_text())))


def page(kept: dict[str, Any]) -> str:
    """docs/support-matrix.md."""
    architectures: dict[str, Any] = kept["architectures"]
    columns = [name for name in COLUMNS if any(name in entry["columns"] for entry in architectures.values())]
    table, refused, notes = [], {}, []
    counts = dict.fromkeys(("right", "refused", "wrong"), 0)
    is_whole = all(len(entry["columns"]) == len(columns) for entry in architectures.values())
    for name in sorted(architectures, key=lambda each: (architectures[each]["kind"], each)):
        entry = architectures[name]
        words = [entry["columns"].get(column, "") for column in columns]
        states = {each.partition(":")[0] for each in words if each}
        if states <= {RIGHT, NOT_APPLICABLE}:
            counts["right"] += 1
        elif states <= {RIGHT, NOT_APPLICABLE, "refused"}:
            counts["refused"] += 1
        else:
            counts["wrong"] += 1
        table.append(
            f"| {_title(name, entry)} | {entry['kind']} | {' | '.join(_SIGNS[each.partition(':')[0]] for each in words)} |"
        )
        first = next((each for each in words if each.startswith("refused")), None)
        if first is not None:
            refused[entry["class"]] = first.partition(": ")[2]
        notes += [
            f"- {entry['class']}, {column}: {each}"
            for column, each in zip(columns, words, strict=True)
            if _is_noted(each)
        ]
    meanings = [f"- **{name}**: {' '.join((COLUMNS[name].__doc__ or '').split())}" for name in columns]
    parts = [
        "# Support matrix",
        "Made by `python benchmarks/support_matrix.py run` and `render`, never edited; all words in "
        f"`results/support_matrix.json`. {_commits(architectures)}, transformers {kept['transformers']}, torch {kept['torch']}, "
        f"{kept['machine']}. One small model with random weights of each architecture, with inputs of which one is padded; the posterior "
        "is `Weibull(k=5)` with a contextual prior, the seeds are fixed.",
        f"Of {len(architectures)} architectures, {counts['right']} are right in every column that applies"
        f"{'' if is_whole else ' and was run'}, {counts['refused']} are refused "
        f"in words, {counts['wrong']} are wrong.",
        "\n".join(meanings),
        "✓ right, – does not apply, ✗ refused, **WRONG**: otherwise" + ("." if is_whole else ", empty: not run yet."),
        "\n".join(
            [f"| architecture | kind | {' | '.join(columns)} |", f"| --- | --- |{' --- |' * len(columns)}", *table]
        ),
        "## What is refused",
        "\n".join(f"- {name}: {words}" for name, words in sorted(refused.items())),
    ]
    if notes:
        parts += ["## Notes", "\n".join(notes)]
    return "\n\n".join("\n".join(_wrapped(line) for line in part.split("\n")) for part in parts) + "\n"


def _commits(architectures: dict[str, Any]) -> str:
    """What was run at which commit: each with its columns, and for how many architectures."""
    run_at: dict[str, Counter[str]] = {}
    for entry in architectures.values():
        for column, commit in entry["commits"].items():
            run_at.setdefault(commit, Counter())[column] += 1
    if len(run_at) == 1:
        return f"Commit `{next(iter(run_at))}`"
    parts = (
        f"`{commit}` ({', '.join(f'{column}: {counts[column]}' for column in COLUMNS if counts[column])})"
        for commit, counts in run_at.items()
    )
    return f"Commits {' and '.join(parts)}"


def _title(name: str, entry: dict[str, Any]) -> str:
    """The class, and which form of it."""
    form = name.partition(", ")[2]
    return f"{entry['class']} ({form})" if form else entry["class"]


_SIGNS = {RIGHT: "✓", NOT_APPLICABLE: "–", "refused": "✗", "": "", "WRONG": "**WRONG**", "fails": "**WRONG**"}


def _is_noted(words: str) -> bool:
    of_the_model = words.startswith(NOT_APPLICABLE) and "does not generate" not in words
    return of_the_model or words.startswith((f"{RIGHT}: ", "WRONG", "fails"))


def _wrapped(line: str) -> str:
    """Prose in 120 columns."""
    if line.startswith(("|", "#")):
        return line
    indent = "  " if line.startswith("- ") else ""
    return textwrap.fill(line, 120, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


if __name__ == "__main__":
    main()
