"""`bayesattn explore`: a page on this machine where a model is asked one question at a time."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from threading import Event

import tyro
from rich.console import Console

from bayesattn.experiments.report.explorable import explorable


@dataclass(frozen=True)
class ExploreCommand:
    """Type a sentence or drop an image, and see the prediction, its uncertainty, and the attention with its spread."""

    model: tyro.conf.Positional[Path]
    """Folder that `save_pretrained` of a converted text classifier wrote, with its tokenizer; or of a finished run on images."""
    host: str = "127.0.0.1"
    """Address to listen at. The default is reached from this machine alone; 0.0.0.0 from every machine that reaches it."""
    port: int = 0
    """Port to listen at; 0: a free one."""
    browser: bool = True
    """Open the page in a browser."""


def explore_model(command: ExploreCommand, console: Console) -> None:
    """`bayesattn explore MODEL`."""
    if find_spec("gradio") is None:
        raise ModuleNotFoundError("No module named 'gradio'", name="gradio")
    subject = explorable(command.model)
    from bayesattn.experiments.report.live_page import live_page, served  # here: it takes seconds to import gradio

    with served(live_page(subject), command.host, command.port, command.browser) as address:
        console.print(f"{subject.title}: {address} (Ctrl-C ends it)", soft_wrap=True, highlight=False, markup=False)
        if not is_loopback(command.host):
            console.print(
                f"It listens at {command.host}: whoever reaches that can use it, there is no password.", soft_wrap=True
            )
        try:
            Event().wait()
        except KeyboardInterrupt:
            console.print("Ended.")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
