"""JSON from outside: values, or words that say where it is from and what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from bayesattn.support import json_text


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "config.json is not JSON: .*line 1 column 2.*truncated"),
        (b"\xff", "config.json is not JSON: .*can't decode byte 0xff"),
        (b"[" * 100_000, "config.json is not JSON for us: its lists are nested too deeply"),
        (b"9" * 5000, "config.json is not JSON: .*5000 digits"),
        (b'{"name": "\\ud800"}', "config.json holds half of a surrogate pair"),
        (b'["\\uDC00"]', "config.json holds half of a surrogate pair"),
    ],
    ids=["cut", "bytes", "deep", "digits", "surrogate", "other surrogate"],
)
def test_what_is_wrong_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        json_text.read(path)


def test_a_whole_surrogate_pair_is_text(tmp_path: Path) -> None:
    assert json_text.parse(b'{"smile": "\\ud83d\\ude00", "k": [1, 2.5, null]}', "here") == {
        "smile": "\U0001f600",
        "k": [1, 2.5, None],
    }
