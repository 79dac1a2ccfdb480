"""The explorer as a page on this machine, made with Gradio: type a sentence or drop an image, and see what the model makes of it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gradio
from markupsafe import Markup

from bayesattn.experiments.report import sections
from bayesattn.experiments.report.explorable import TEST, Answered, Explorable, ImageRun, TextModel
from bayesattn.experiments.report.page import template
from bayesattn.experiments.report.verdict import verdict

MOST = 64
"""Samples that can be chosen."""
LARGEST_FILE = "20mb"
HIDDEN: Any = {"api_visibility": "private", "show_progress": "hidden"}


def live_page(subject: TextModel | ImageRun) -> gradio.Blocks:
    """The page; nothing is served yet."""
    with gradio.Blocks(
        analytics_enabled=False, title=subject.title, fill_width=True, delete_cache=(3600, 3600)
    ) as page:
        gradio.HTML(Markup('<h1 class="title">{}</h1>').format(subject.title), apply_default_css=False)
        with gradio.Row():
            with gradio.Column(scale=2, min_width=280):
                ask = _Sentence(subject) if isinstance(subject, TextModel) else _Image(subject)
                samples = _samples(subject)
                threshold = _threshold(subject)
            with gradio.Column(scale=5, min_width=320):
                said = gradio.HTML(apply_default_css=False)
                looked = gradio.HTML(
                    apply_default_css=False,
                    head=f"<script>{template('explorer.js').render()}</script>",
                    js_on_load="startExplorers(); watch('value', startExplorers);",
                )
        last = gradio.State()

        def answer(samples: int, threshold: float, *given: Any) -> tuple[Answered | None, str, str]:
            try:
                answered = ask.look(samples, *given)
            except ValueError as problem:
                return None, Markup('<div class="verdict">{}</div>').format(problem), ""
            return answered, verdict(answered, subject.classes, threshold), _explorer(answered, subject)

        def decide(answered: Answered | None, threshold: float) -> Any:
            return gradio.skip() if answered is None else verdict(answered, subject.classes, threshold)

        everything = [samples, threshold, *ask.given]
        for happens in (page.load, samples.input, *ask.happens):
            happens(answer, everything, [last, said, looked], api_visibility="private", trigger_mode="always_last")
        threshold.input(decide, [last, threshold], said, trigger_mode="always_last", **HIDDEN)
    return page


class _Sentence:
    """A box to type in."""

    def __init__(self, subject: TextModel):
        self.subject = subject
        text = gradio.Textbox(
            label="sentence", placeholder="Type a sentence, then Enter", lines=1, max_lines=12, submit_btn=True
        )
        self.given = [text]
        self.happens = [text.submit]

    def look(self, samples: int, text: str) -> Answered:
        return self.subject.look(text, samples)


class _Image:
    """A place to drop an image, and the task's own images to choose from."""

    def __init__(self, subject: ImageRun):
        self.subject = subject
        first = len(subject.sets[TEST])
        names = gradio.Dropdown(list(subject.sets), value=TEST, label="images of")
        number = gradio.Slider(1, first, value=1, step=1, label="which image")
        dropped = gradio.Image(
            type="pil", image_mode="RGB", sources=["upload", "clipboard"], label="or an image of your own", height=200
        )
        inverted = gradio.Checkbox(label="dark on light: invert it", visible=subject.task.channels == 1)
        other_set = names.input(self._other_set, names, [number, dropped], **HIDDEN)
        other_image = number.input(lambda: None, None, dropped, trigger_mode="always_last", **HIDDEN)
        self.given = [names, number, dropped, inverted]
        # after what was dropped has gone: it would be looked at in place of the image that was chosen
        self.happens = [other_set.then, other_image.then, dropped.upload, dropped.clear, inverted.input]

    def _other_set(self, name: str) -> tuple[Any, None]:
        return gradio.Slider(maximum=len(self.subject.sets[name]), value=1), None

    def look(self, samples: int, name: str, number: int, dropped: Any, inverted: bool) -> Answered:
        if dropped is not None:
            return self.subject.look(self.subject.fitted(dropped, inverted), samples)
        image, right = self.subject.example(name, int(number))
        return self.subject.look(image, samples, right)


def _samples(subject: Explorable) -> gradio.Slider:
    if subject.why_fixed:
        return gradio.Slider(
            1,
            max(MOST, subject.samples),
            value=subject.samples,
            label="samples",
            info=subject.why_fixed,
            interactive=False,
        )
    return gradio.Slider(2, MOST, value=min(max(subject.samples, 2), MOST), step=1, label="samples")


def _threshold(subject: Explorable) -> gradio.Slider:
    if subject.calibrated is not None:
        info = "how many of the answers it gives may be wrong; it abstains from the others"
        return gradio.Slider(0.01, 0.5, value=0.05, step=0.01, label="risk", info=info)
    info = "it abstains where the probability of its answer is lower"
    return gradio.Slider(0, 1, value=0.5, step=0.01, label="abstention threshold", info=info)


def _explorer(answered: Answered, subject: Explorable) -> str:
    return "" if answered.explored is None else sections.explorer({subject.title: [answered.explored]}).body


@contextmanager
def served(page: gradio.Blocks, host: str, port: int, browser: bool = False) -> Iterator[str]:
    """The page at this address while the block runs; port 0 is a free one. Nothing is shared, and nothing is sent elsewhere."""
    port = _free_port(host, port)
    styles = "".join(template(name).render() for name in ("explorer.css", "live.css"))
    try:
        _, address, _ = page.launch(
            server_name=f"[{host}]" if ":" in host else host,
            server_port=port,
            inbrowser=browser,
            share=False,
            quiet=True,
            inline=False,
            prevent_thread_lock=True,
            show_error=True,
            footer_links=[],
            run_history=False,
            enable_monitoring=False,
            mcp_server=False,
            ssr_mode=False,
            pwa=False,
            max_file_size=LARGEST_FILE,
            state_session_capacity=100,
            theme=gradio.themes.Default(
                primary_hue="blue", font=["system-ui", "sans-serif"], font_mono=["ui-monospace", "monospace"]
            ),
            head=f"<style>{styles}</style>",
        )
        yield address
    finally:
        page.close(verbose=False)


def _free_port(host: str, port: int) -> int:
    """The port, or a free one for 0; refused is what cannot be bound."""
    if not 0 <= port <= 65535:
        raise ValueError(f"port={port} is none: take 0 (a free one) to 65535.")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as problem:
        raise ValueError(
            f"host={host!r} is not known ({problem.strerror}): take 127.0.0.1, or an address of this machine."
        ) from None
    with socket.socket(family, kind, protocol) as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind(address)
        except OSError as problem:
            raise ValueError(
                f"host={host!r}, port={port} cannot be used ({problem.strerror}): take --port 0 for a free port, and a host that is "
                "an address of this machine."
            ) from None
        return tried.getsockname()[1]
