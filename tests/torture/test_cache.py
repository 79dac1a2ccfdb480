"""A short form of `make torture`: every damage of the cache of compiled kernels, once."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from bayesattn.kernels import build
from torture.attention_cases import Wrong
from torture.cache_cases import DAMAGES, CacheCase, check, torture

pytestmark = pytest.mark.skipif(build.find_compiler() is None, reason="no compiler")


def test_every_damage_is_survived() -> None:
    tally = torture(range(len(DAMAGES)))
    assert tally.wrong == {}
    assert tally.tried == len(DAMAGES)


def test_a_library_that_is_loaded_unchecked_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The torture can fail: a cache that trusts its names loads a truncated library, and the process dies or fails."""
    monkeypatch.setattr(build, "_what_is_wrong", lambda library: None)
    with pytest.raises(Wrong):
        check(CacheCase(12, "empty"))


def test_the_name_is_the_digest_of_the_bytes(tmp_path: Path) -> None:
    built = build.build(build.find_compiler(), build.cache_directory())
    assert built.path is not None
    assert built.path.stem.endswith(hashlib.sha256(built.path.read_bytes()).hexdigest())
