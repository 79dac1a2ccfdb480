"""Finding and checking data files: what is missing or damaged is said with file, fault and source; nothing half-loaded."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path

import pytest

from bayesattn.experiments.data import files
from bayesattn.experiments.data.files import DataError, DataFile, locate, read, read_text

CONTENT = b"some data\n" * 100
FILE = DataFile("set/part.txt", hashlib.sha256(CONTENT).hexdigest(), "the library of Alexandria")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BAYESATTN_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("BAYESATTN_CACHE", str(tmp_path / "cache"))
    (tmp_path / "data" / "set").mkdir(parents=True)
    return tmp_path / "data"


def test_a_plain_file_is_read(folder: Path) -> None:
    (folder / "set/part.txt").write_bytes(CONTENT)
    assert read(FILE) == (CONTENT, folder / "set/part.txt")


def test_a_packed_file_is_unpacked_however_it_was_packed(folder: Path) -> None:
    for level in (1, 9):
        (folder / "set/part.txt.gz").write_bytes(gzip.compress(CONTENT, level))
        assert read(FILE)[0] == CONTENT


def test_a_truncated_gz_is_named_with_its_source(folder: Path) -> None:
    (folder / "set/part.txt.gz").write_bytes(gzip.compress(CONTENT)[:-10])
    with pytest.raises(DataError, match=r"part.txt.gz is damaged: .* truncated. Get it from the library of Alexandria"):
        read(FILE)


def test_a_gz_with_a_flipped_bit_is_damaged(folder: Path) -> None:
    packed = bytearray(gzip.compress(CONTENT))
    packed[len(packed) // 2] ^= 0xFF
    (folder / "set/part.txt.gz").write_bytes(bytes(packed))
    with pytest.raises(DataError, match=r"part.txt.gz"):
        read(FILE)


def test_a_wrong_checksum_is_refused_unless_switched_off(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "set/part.txt").write_bytes(CONTENT + b"!")
    with pytest.raises(DataError, match=rf"not the expected file: .*, not {FILE.sha256}.*library of Alexandria"):
        read(FILE)
    monkeypatch.setenv("BAYESATTN_DATA_CHECK", "off")
    assert read(FILE)[0] == CONTENT + b"!"


def test_a_missing_file_says_where_it_was_looked_for(folder: Path) -> None:
    with pytest.raises(DataError, match=rf"set/part.txt was not found in {folder}. Get it from the library"):
        read(FILE)


@pytest.fixture
def local(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of this machine stand in for those of a server."""
    monkeypatch.setattr(files._Secure, "check", staticmethod(lambda url: None))


@pytest.mark.usefixtures("local")
def test_a_file_is_downloaded_into_the_cache_once_it_is_checked(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(gzip.compress(CONTENT))
    file = DataFile(FILE.path, FILE.sha256, FILE.source, url=f"file://{tmp_path / 'source'}")
    content, path = read(file)
    assert content == CONTENT
    assert path == tmp_path / "cache/data/set/part.txt"
    assert path.read_bytes() == CONTENT


@pytest.mark.usefixtures("local")
def test_a_damaged_download_leaves_nothing_behind(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(b"an error page")
    file = DataFile(FILE.path, FILE.sha256, FILE.source, url=f"file://{tmp_path / 'source'}")
    with pytest.raises(DataError, match="not the expected file"):
        read(file)
    assert list((tmp_path / "cache/data/set").iterdir()) == []


@pytest.mark.usefixtures("local")
def test_a_failed_download_says_what_was_tried(folder: Path, tmp_path: Path) -> None:
    file = DataFile(FILE.path, FILE.sha256, FILE.source, url=f"file://{tmp_path / 'nothing'}")
    with pytest.raises(DataError, match=r"downloading file://.*nothing failed"):
        read(file)


@pytest.mark.parametrize("url", ["http://example.org/file", "file:///etc/passwd", "ftp://example.org/file"])
def test_a_download_comes_by_https_alone(folder: Path, url: str) -> None:
    with pytest.raises(DataError, match=rf"downloading {url} failed \({url} is not https\)"):
        read(DataFile(FILE.path, FILE.sha256, FILE.source, url=url))
    with pytest.raises(ValueError, match="is not https"):
        files._Secure().redirect_request(None, None, 302, "", {}, url)


@pytest.mark.usefixtures("local")
def test_what_is_too_large_is_refused_before_it_is_whole(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MOST_BYTES", 10_000)
    bomb = gzip.compress(bytes(10_000_000))  # ten kilobytes
    (folder / "set/part.txt.gz").write_bytes(bomb)
    with pytest.raises(DataError, match=r"part.txt.gz is not the expected file: it has more than 10,000 bytes"):
        read(FILE)
    (folder / "set/part.txt.gz").unlink()
    (tmp_path / "source").write_bytes(bytes(20_000))
    with pytest.raises(DataError, match=r"source is not the expected file: it has more than 10,000 bytes"):
        read(DataFile(FILE.path, FILE.sha256, FILE.source, url=f"file://{tmp_path / 'source'}"))


def test_without_a_named_folder_the_cache_is_the_only_one(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BAYESATTN_DATA")
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    for beside in (tmp_path / "shared/data", tmp_path / "project/shared/data", tmp_path / "project"):
        (beside / "set").mkdir(parents=True)
        (beside / "set/part.txt").write_bytes(CONTENT)
    assert locate(FILE) is None
    (tmp_path / "cache/data/set").mkdir(parents=True)
    (tmp_path / "cache/data/set/part.txt").write_bytes(CONTENT)
    assert read(FILE) == (CONTENT, tmp_path / "cache/data/set/part.txt")


def test_text_is_unicode_or_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BAYESATTN_DATA_CHECK", "off")
    path = folder / "set/part.txt"
    path.write_bytes(b"\xef\xbb\xbfcaf\xc3\xa9")
    assert read_text(FILE) == ("café", path)
    path.write_bytes(b"caf\xe9")
    with pytest.raises(DataError, match=r"part.txt is not UTF-8 text .*Get it from the library of Alexandria"):
        read_text(FILE)
