"""Feature files: each published format gives the same regions, and what is wrong with one is named."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy
import pytest
import torch

from bayesattn.experiments.data.features import load_regions
from bayesattn.experiments.data.files import DataError
from helpers.image_files import archive, block, put_tsv, tsv_line


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BAYESATTN_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def expected(image: int) -> torch.Tensor:
    return torch.from_numpy(block(image, 2 + image % 3).copy())


def check(path: Path) -> None:
    regions = load_regions(path)
    assert sorted(regions.ids) == ["10", "11", "9"]
    for image in (9, 10, 11):
        features, mask = regions.of(regions.find([str(image)], "test"))
        torch.testing.assert_close(features[mask], expected(image), atol=5e-3, rtol=1e-3)  # kept as float16


def test_bottom_up_attention_tsv_is_packed_once(tmp_path: Path, cache: Path) -> None:
    put_tsv(tmp_path / "features", range(9, 12))
    check(tmp_path / "features")
    check(tmp_path / "features" / "features.tsv")
    kept = {path: path.stat().st_mtime_ns for path in cache.rglob("*.float16")}
    assert len(kept) == 1
    check(tmp_path / "features")
    assert kept == {path: path.stat().st_mtime_ns for path in cache.rglob("*.float16")}
    put_tsv(tmp_path / "features", range(9, 13))
    assert len(load_regions(tmp_path / "features").ids) == 4, "another file is packed anew"


@pytest.mark.parametrize("kind", ["mcan", "luo"])
def test_one_archive_for_each_image(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "features" / "train2014"
    folder.mkdir(parents=True)
    for image in (9, 10, 11):
        features = block(image, 2 + image % 3)
        if kind == "mcan":
            numpy.savez(folder / f"COCO_train2014_{image:012d}.jpg.npz", x=features.T, num_bbox=len(features))
        else:
            numpy.savez(folder / f"{image}.npz", feat=features)
    check(tmp_path / "features")


def test_one_archive_for_all(tmp_path: Path) -> None:
    values = torch.randn(2, 5, 3).half()
    path = tmp_path / "features.npz"
    numpy.savez(path, **archive(values, ["x.jpg", "y.jpg"]))
    regions = load_regions(path)
    torch.testing.assert_close(regions.of(torch.tensor([1]))[0][0], values[1].float())
    assert regions.ids == ("x.jpg", "y.jpg")
    numpy.savez(path, **archive(values, ["x.jpg"]))
    with pytest.raises(
        DataError, match=r"features.npz: regions \(2, 5, 3\) must be .* as many images as image_ids \(1\)"
    ):
        load_regions(path)
    numpy.savez(path, **archive(values, ["x.jpg", "x.jpg"]))
    with pytest.raises(DataError, match=r"features.npz: image x.jpg is there twice"):
        load_regions(path)
    numpy.savez(path, **archive(values[:, :0], ["x.jpg", "y.jpg"]))
    with pytest.raises(DataError, match=r"features.npz: image x.jpg has no regions"):
        load_regions(path)
    numpy.savez(path, regions=values.numpy())
    with pytest.raises(DataError, match=r"features.npz lacks an array: .*image_ids"):
        load_regions(path)
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(DataError, match=r"features.npz is damaged: it is not an archive of numpy arrays"):
        load_regions(path)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (tsv_line(7, block(7, 2), num_boxes="0", features=""), "line 2: image 7 has no regions"),
        (tsv_line(7, block(7, 2), features="AAA*"), "line 2: the features of image 7 are not base64"),
        (
            tsv_line(7, block(7, 2), num_boxes="3"),
            "line 2: image 7 has 32 bytes of features, which are not 3 regions of float32",
        ),
        (
            tsv_line(7, block(7, 2), image_id="seven"),
            r"line 2: image_id b'seven' and num_boxes b'2' must be whole numbers",
        ),
        (tsv_line(7, block(7, 2), num_boxes=""), "line 2: image_id .* must be whole numbers"),
        ("7\t640\t480", "line 2 has 3 columns in place of the 6"),
        (tsv_line(7, block(7, 2, features=5)), "image 7 has 5 features, those before it 4"),
        (tsv_line(7, block(7, 2) * numpy.float32("nan")), "the features of image 7 are not all finite"),
        (tsv_line(1, block(1, 2)), "image 1 is there twice"),
    ],
)
def test_a_wrong_line_is_named_and_nothing_is_left_behind(tmp_path: Path, cache: Path, line: str, message: str) -> None:
    path = tmp_path / "some.tsv"
    path.write_text(tsv_line(1, block(1, 3)) + "\n" + line + "\n")
    with pytest.raises(DataError, match=f"some.tsv.*{message}"):
        load_regions(path)
    assert not list(cache.rglob("*.*"))


def test_what_is_no_features_is_said(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere was not found: it should hold the features"):
        load_regions(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"empty holds no features: there must be .tsv files"):
        load_regions(tmp_path / "empty")
    (tmp_path / "empty" / "none.tsv").write_text("")
    with pytest.raises(DataError, match=r"none.tsv is empty"):
        load_regions(tmp_path / "empty")
    folder = tmp_path / "arrays"
    folder.mkdir()
    numpy.savez(folder / "12.npz", y=numpy.zeros(3))
    with pytest.raises(DataError, match=r"12.npz has the arrays \['y'\]: there must be 'x'"):
        load_regions(folder)
    numpy.savez(folder / "12.npz", feat=numpy.zeros((0, 4)))
    with pytest.raises(DataError, match=r"12.npz: image 12 has no regions"):
        load_regions(folder)


def test_another_byte_order_is_read_and_other_kinds_of_arrays_are_refused(tmp_path: Path) -> None:
    values = torch.randn(2, 5, 3)
    path = tmp_path / "features.npz"
    names = numpy.array(["x.jpg", "y.jpg"])
    numpy.savez(path, regions=values.numpy().astype(">f4"), image_ids=names)
    torch.testing.assert_close(load_regions(path).of(torch.tensor([0, 1]))[0], values)
    for wrong, message in (
        (values.numpy().astype("c8"), "features must be floating-point numbers, not complex64"),
        (numpy.full((2, 5, 3), "x"), "features must be floating-point numbers, not <U1"),
        (values.numpy() * numpy.float32("nan"), "the features are not all finite"),
        (values.numpy().astype("f8") * 1e300, "the features are not all finite in single precision"),
        (numpy.array(1.0), r"regions \(\) must be"),
    ):
        numpy.savez(path, regions=wrong, image_ids=names)
        with pytest.raises(DataError, match=f"features.npz: {message}"):
            load_regions(path)
    for character in (0x7FFFFFFF, 0xD800):  # no character, half of one
        numpy.savez(path, regions=values.numpy(), image_ids=numpy.array([character, 65], "<u4").view("<U1"))
        with pytest.raises(DataError, match=r"features.npz: image_ids are not text"):
            load_regions(path)
    for ids in (numpy.array("x.jpg"), numpy.zeros((2, 1), int), numpy.zeros(0, int), numpy.ones(2)):
        numpy.savez(path, regions=values.numpy(), image_ids=ids)
        with pytest.raises(DataError, match=r"features.npz: image_ids must be a list of text or whole numbers"):
            load_regions(path)


def test_what_numpy_takes_for_something_else_is_no_archive(tmp_path: Path) -> None:
    path = tmp_path / "features.npz"
    with path.open("wb") as file:
        numpy.save(file, numpy.zeros(3))  # one array, not an archive
    with pytest.raises(DataError, match=r"features.npz is damaged: it is not an archive of numpy arrays"):
        load_regions(path)
    with zipfile.ZipFile(path, "w") as archived:
        archived.writestr("regions.npy", b"not an array")
        archived.writestr("image_ids.npy", b"")
    with pytest.raises(DataError, match=r"features.npz is damaged: 'regions' is not a numpy array"):
        load_regions(path)
