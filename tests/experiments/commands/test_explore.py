"""`bayesattn explore`, as a person types it."""

from __future__ import annotations

import re
import socket
import threading
from importlib import util
from pathlib import Path
from typing import Any

import pytest

from bayesattn.experiments.commands import explore
from helpers.command_line import bayesattn
from helpers.saved_models import save_classifier

pytestmark = pytest.mark.usefixtures("empty_folder")


def test_without_gradio_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explore, "find_spec", lambda name: None if name == "gradio" else util.find_spec(name))
    with pytest.raises(SystemExit, match=r"needs gradio: pip install 'bayesattn\[explore\]'"):
        bayesattn(monkeypatch, "explore", "somewhere")


@pytest.mark.skipif(util.find_spec("gradio") is None, reason="needs the extra explore")
def test_a_folder_that_is_none_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit, match=r"bayesattn: model=somewhere is no folder: name the folder of a finished run"):
        bayesattn(monkeypatch, "explore", "somewhere")


def test_the_page_is_on_this_machine_alone_and_ends_with_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    pytest.importorskip("gradio")
    save_classifier(tmp_path / "model")
    for name, value in (
        ("GRADIO_SHARE", "True"),
        ("GRADIO_SERVER_NAME", "0.0.0.0"),
        ("GRADIO_ANALYTICS_ENABLED", "True"),
    ):
        monkeypatch.setenv(name, value)  # what is set for other pages does not open this one
    asked: list[Any] = []
    connect = socket.socket.connect

    def connecting(self: socket.socket, address: Any) -> None:
        asked.append(address)
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", connecting)
    ports: list[int] = []

    class Waiting:
        """In place of the event that the command waits for."""

        def wait(self) -> None:
            found = re.search(r"model: http://127\.0\.0\.1:(\d+)/ \(Ctrl-C ends it\)", capsys.readouterr().out)
            assert found is not None
            ports.append(int(found[1]))
            socket.create_connection(("127.0.0.1", ports[0]), 5).close()
            with pytest.raises(ConnectionRefusedError):  # a server on all addresses would be there too
                socket.create_connection(("127.0.0.2", ports[0]), 5)
            raise KeyboardInterrupt

    monkeypatch.setattr(explore, "Event", Waiting)
    bayesattn(monkeypatch, "explore", "model", "--no-browser")
    assert "Ended." in capsys.readouterr().out
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", ports[0]), 5)
    assert {address[0] for address in asked} <= {"127.0.0.1", "127.0.0.2"}
    assert [left for left in threading.enumerate() if "uvicorn" in left.name.lower()] == []


def test_the_default_is_loopback_and_others_are_told_apart() -> None:
    assert explore.is_loopback(explore.ExploreCommand(Path("model")).host)
    assert all(map(explore.is_loopback, ("localhost", "::1", "127.0.0.9")))
    assert not any(map(explore.is_loopback, ("0.0.0.0", "::", "192.168.1.2", "example.org")))
