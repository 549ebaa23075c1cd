# SPDX-License-Identifier: Apache-2.0
"""Data for a model: rows that are read, with or without a batch axis, and errors of wrong data."""

import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from nnpa_client.network.hosted import Port
from nnpa_tools.evaluation.datasets import Preprocessing, open_data, read_preprocessing
from nnpa_tools.evaluation.datasets.opening import Data
from nnpa_tools.evaluation.datasets.rows import array_rows, random_rows
from nnpa_wire.installation import pip_install

Image = pytest.importorskip("PIL.Image")  # the extra `data`
pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
X = Port("x", "float32", (-1, 4))
Y = Port("y", "float32", (-1, 3))
ONE = Port("image", "float32", (1, 3, 8, 6))
OUT = Port("out", "float32", (1, 10))
ROWS = np.arange(40, dtype=np.float32).reshape(10, 4)


def read(path: Path, inputs: Sequence[Port] = (X,), **options: object) -> dict[str, list[object]]:
    """Return all rows of data as lists."""
    dataset = open_data(path, inputs, (Y,), **options)  # type: ignore[arg-type]
    return {name: array.tolist() for name, array in dataset.read(0, dataset.rows).items()}


def test_files_of_every_kind_give_the_same_rows(tmp_path: Path) -> None:
    """A .npy, a .npz with and without names, a .csv with and without a head, and a .parquet."""
    np.save(tmp_path / "a.npy", ROWS)
    np.savez(tmp_path / "b.npz", x=ROWS)
    np.savez(tmp_path / "c.npz", ROWS)
    lines = [",".join(map(str, row)) for row in ROWS.tolist()]
    (tmp_path / "d.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "e.csv").write_text("\n".join(["a,b,c,d", *lines]) + "\n")
    pq.write_table(pa.table({f"f{at}": ROWS[:, at] for at in range(4)}), tmp_path / "f.parquet")
    pq.write_table(pa.table({"x": ROWS.tolist()}), tmp_path / "g.parquet")
    for file in sorted(tmp_path.iterdir()):
        assert read(file) == {"x": ROWS.tolist()}, file.name


def test_several_inputs_in_columns(tmp_path: Path) -> None:
    """Columns x.0, x.1 belong to input x; an input of integers gets integers."""
    (tmp_path / "a.csv").write_text("n,x.0,x.1\n1,0.5,1.5\n2,2.5,3.5\n")
    inputs = (Port("x", "float32", (-1, 2)), Port("n", "int64", (-1,)))
    assert read(tmp_path / "a.csv", inputs) == {"x": [[0.5, 1.5], [2.5, 3.5]], "n": [1, 2]}


@pytest.mark.parametrize(
    ("shape", "port", "out", "expected"),
    [
        ((10, 4), X, Y, (10, 4)),
        ((10, 1, 4), X, Y, (10, 4)),
        ((4,), X, Y, (1, 4)),
        ((5, 2, 4), X, Y, (5, 2, 4)),  # samples of two rows: runs of their own
        ((10, 3, 8, 6), ONE, OUT, (10, 1, 3, 8, 6)),
        ((10, 1, 3, 8, 6), ONE, OUT, (10, 1, 3, 8, 6)),
        ((6, 4), Port("x", "float32", (2, 4)), Port("y", "float32", (2, 3)), (3, 2, 4)),
        ((7, 5), Port("x", "float32", (5,)), Port("y", "float32", (1,)), (7, 5)),
    ],
)  # fmt: skip
def test_a_batch_axis_or_none(
    shape: tuple[int, ...], port: Port, out: Port, expected: tuple[int, ...]
) -> None:
    """Rows come with the axis of the batch, without it, or as runs of a fixed batch."""
    dataset = array_rows({port.name: np.zeros(shape, np.float32)}, "data", (port,), (out,))
    assert dataset.read(0, dataset.rows)[port.name].shape == expected


def npz(**arrays: object) -> Callable[[Path], Path]:
    """Return a function that writes arrays into a folder."""

    def write(folder: Path) -> Path:
        path = folder / "data.npz"
        np.savez(path, **arrays)  # type: ignore[arg-type]
        return path

    return write


def text(name: str, content: str | bytes) -> Callable[[Path], Path]:
    """Return a function that writes a file into a folder."""

    def write(folder: Path) -> Path:
        path = folder / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


def missing(folder: Path) -> Path:
    """Return the path of a file that does not exist."""
    return folder / "none.npz"


def parquet(**columns: object) -> Callable[[Path], Path]:
    """Return a function that writes a table into a folder."""

    def write(folder: Path) -> Path:
        pq.write_table(pa.table(columns), folder / "data.parquet")
        return folder / "data.parquet"

    return write


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (npz(pixels=ROWS), "data.npz: 'pixels' is no input of the model: x float32[-1, 4]"),
        (npz(x=ROWS, z=ROWS), "'z' is no input of the model"),
        (npz(x=ROWS, z=ROWS), "; give labels='z' where it has the labels"),
        (npz(x=ROWS.astype(np.float64)), "input x: float64 array, expected float32; .astype("),
        (npz(x=ROWS[:, :3]), "input x is [10, 3], expected rows of [4], with or without the batch"),
        (npz(x=ROWS.reshape(1, 1, 10, 4)), "input x is [1, 1, 10, 4], expected rows of [4]"),
        (npz(x=ROWS[:0]), "data.npz: there is no row in it"),
        (npz(x=np.array([{}, 1], object)), "data.npz: no arrays of NumPy, or objects"),
        (text("data.npy", "no array"), "data.npy: no arrays of NumPy, or objects"),
        (text("data.npz", "no zip"), "data.npz: no arrays of NumPy, or objects"),
        (text("data.bin", "?"), "data.bin: expected .npz, .npy, .csv, .parquet or a folder"),
        (text("data.csv", ""), "data.csv: there is no row in it"),
        (text("data.csv", "a,b,c,d\n"), "data.csv: there is no row in it"),
        (text("data.csv", "1,2,3,4\n1,2,x,4\n"), "line 2, column 2: 'x' is no number"),
        (text("data.csv", "1,2,3,4\n1,2,3\n"), "data.csv line 2: 3 values, expected 4"),
        (text("data.csv", "1,2,3\n"), "takes 4 numbers in each row, it has 3 columns"),
        (text("data.csv", b"\xff\xfe1"), "data.csv is no CSV in UTF-8"),
        (text("data.parquet", "PAR?"), "data.parquet is no Parquet that can be read"),
        (parquet(a=[1.0, None]), "data.parquet: row 1 of column a is empty"),
        (parquet(a=[[1.0], [1.0, 2.0]]), "column a has lists of several lengths"),
        (parquet(a=pa.array([], pa.float32())), "data.parquet: there is no row in it"),
        (missing, "none.npz: there is no such file or folder"),
    ],
)  # fmt: skip
def test_wrong_data_have_messages(
    tmp_path: Path, write: Callable[[Path], Path], message: str
) -> None:
    """Wrong names, ranks and types, unreadable rows and empty data have a message each."""
    with pytest.raises(ValueError, match=re.escape(message)):
        open_data(write(tmp_path), (X,), (Y,))


def test_inputs_of_several_lengths_or_missing(tmp_path: Path) -> None:
    """Data must have every input, each with the same number of samples."""
    inputs = (Port("a", "float32", (-1, 2)), Port("b", "float32", (-1, 2)))
    two = np.zeros((2, 2), np.float32)
    for arrays, message in (
        ({"a": two, "b": two[:1]}, "data.npz: a 2, b 1 samples, expected as many of each input"),
        ({"a": two}, "data.npz: input 'b' is missing: a float32[-1, 2], b float32[-1, 2]"),
    ):
        with pytest.raises(ValueError, match=re.escape(message)):
            open_data(npz(**arrays)(tmp_path), inputs, (Y,))
    np.save(tmp_path / "a.npy", two)
    with pytest.raises(ValueError, match=r"one array for a .*, b .*: give a \.npz of all"):
        open_data(tmp_path / "a.npy", inputs, (Y,))
    fixed = Port("x", "float32", (2, 4))
    with pytest.raises(ValueError, match=r"has 3 rows, the model takes 2 at a time"):
        array_rows({"x": ROWS[:3]}, "data", (fixed,), (Y,))


def test_free_dims_that_data_do_not_settle(tmp_path: Path) -> None:
    """Columns of a row, and made-up rows, need the sizes of dims that are free."""
    words = Port("x", "float32", (-1, -1, 2))
    out = Port("y", "float32", (-1, -1))
    (tmp_path / "a.csv").write_text("1,2,3,4\n5,6,7,8\n")
    wide = Port("x", "float32", (-1, -1, -1))
    with pytest.raises(ValueError, match=r"4 columns does not settle its free dims: give --shape"):
        open_data(tmp_path / "a.csv", (wide,), (out,))
    dataset = open_data(tmp_path / "a.csv", (wide,), (out,), shapes={"x": (1, 2, 2)})
    assert dataset.read(0, 2)["x"].shape == (2, 2, 2)
    with pytest.raises(ValueError, match=r"free dims that nothing settles: .* --shape x=1,8,2"):
        random_rows(3, 0, {}, (words,), (out,))
    generated = random_rows(5, 7, {"x": (1, 3, 2)}, (words,), (out,))
    whole, part = generated.read(0, 5)["x"], generated.read(3, 5)["x"]
    assert whole.shape == (5, 3, 2)
    np.testing.assert_array_equal(whole[3:], part)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.arange(3), "labels: 3 labels for 10 rows"),
        (np.arange(10) + 0.5, "labels: labels are float64, expected whole numbers"),
        (np.array(["a"] * 10), "expected whole numbers"),
        ("y.npy", "labels='y.npy': no such file, and no array or column of data"),
    ],
)
def test_wrong_labels_are_refused(labels: object, message: str) -> None:
    """Labels of a wrong length or type, or missing labels, have a message each."""
    with pytest.raises(ValueError, match=re.escape(message)):
        open_data({"x": ROWS}, (X,), (Y,), labels)  # type: ignore[arg-type]


def test_labels_that_a_file_lacks(tmp_path: Path) -> None:
    """An unknown name of labels is refused with the names that the data have."""
    np.savez(tmp_path / "data.npz", x=ROWS, y=np.arange(10))
    message = "labels='z': no such file, and no array or column of data.npz, which has x, y"
    with pytest.raises(ValueError, match=re.escape(message)):
        open_data(tmp_path / "data.npz", (X,), (Y,), "z")


def test_labels_from_everywhere(tmp_path: Path) -> None:
    """A file of its own, of four kinds, an array of the .npz, and a column of the table."""
    classes = np.arange(10)
    np.savez(tmp_path / "data.npz", x=ROWS, y=classes)
    np.save(tmp_path / "l.npy", classes[:, None])
    (tmp_path / "l.txt").write_text("\n".join(map(str, classes)))
    (tmp_path / "l.csv").write_text("label\n" + "\n".join(map(str, classes)))
    pq.write_table(pa.table({"l": classes}), tmp_path / "l.parquet")
    table = {"y": classes, "x": ROWS.tolist()}
    pq.write_table(pa.table(table), tmp_path / "data.parquet")
    cases: list[tuple[Data, Path | str]] = [
        (tmp_path / "data.npz", "y"),
        (tmp_path / "data.parquet", "y"),
        *(({"x": ROWS}, tmp_path / f"l.{kind}") for kind in ("npy", "txt", "csv", "parquet")),
    ]
    for data, labels in cases:
        read_labels = open_data(data, (X,), (Y,), labels).labels
        assert read_labels is not None
        np.testing.assert_array_equal(read_labels, classes)
    (tmp_path / "two.csv").write_text("a,b\n1,2\n")
    (tmp_path / "bad.txt").write_text("one\n")
    for file, message in (
        ("two.csv", "labels are one column"),
        ("bad.txt", "whole number in each"),
    ):
        with pytest.raises(ValueError, match=message):
            open_data({"x": ROWS}, (X,), (Y,), tmp_path / file)


def paint(folder: Path, sizes: Sequence[tuple[int, int]] = ((6, 8),) * 3) -> Path:
    """Write images, each of one colour, into a folder per class."""
    for number, size in enumerate(sizes):
        place = folder / ("dog" if number % 2 else "cat")
        place.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", size, (number * 10, 100, 200)).save(place / f"{number}.png")
    return folder


SAID = Preprocessing(layout="NCHW", scale=0.5)


def test_images_are_scaled_and_laid_out_as_asked(tmp_path: Path) -> None:
    """Pixels are (p * scale - mean) / std, in the chosen layout; folders are classes."""
    folder = paint(tmp_path / "images")
    said = Preprocessing("NCHW", 0.5, mean=(1.0, 2.0, 3.0), std=(2.0,))
    dataset = open_data(folder, (ONE,), (OUT,), "folders", said)
    assert dataset.rows == 3
    assert dataset.labels is not None
    assert dataset.labels.tolist() == [0, 0, 1]  # cat/0, cat/2, dog/1
    images = dataset.read(0, 3)["image"]
    assert images.shape == (3, 1, 3, 8, 6)
    expected = [(20 * 0.5 - 1) / 2, (100 * 0.5 - 2) / 2, (200 * 0.5 - 3) / 2]
    np.testing.assert_allclose(images[1, 0, :, 4, 4], expected, rtol=1e-6)
    assert dataset.about["mean"] == "1.0, 2.0, 3.0"
    assert dataset.about["classes"] == "0 cat, 1 dog"
    last = Port("image", "uint8", (-1, 8, 6, 3))
    free = Port("out", "float32", (-1, 10))
    raw = open_data(folder, (last,), (free,), None, Preprocessing("NHWC", 1.0)).read(0, 2)
    assert raw["image"].shape == (2, 8, 6, 3)
    assert raw["image"][1, 0, 0].tolist() == [20, 100, 200]


def test_images_are_resized_and_cropped(tmp_path: Path) -> None:
    """The shorter side is resized, or both; the middle stays."""
    folder = paint(tmp_path / "images", [(12, 32)])
    for said in (
        Preprocessing("NCHW", 1.0, resize=(8, 6)),
        Preprocessing("NCHW", 1.0, resize=(6,), crop=(8, 6)),
    ):
        images = open_data(folder, (ONE,), (OUT,), None, said).read(0, 1)["image"]
        assert images.shape == (1, 1, 3, 8, 6)


@pytest.mark.parametrize(
    ("said", "port", "message"),
    [
        (Preprocessing(), ONE, "images need --layout and --scale, given or in the JSON beside"),
        (Preprocessing("NCHW"), ONE, "images need --scale"),
        (Preprocessing("CHW", 1.0), ONE, "--layout CHW: expected NCHW or NHWC"),
        (Preprocessing("NHWC", 1.0), ONE, "6 channels, expected 1 or 3; is the layout right?"),
        (Preprocessing("NCHW", 1.0, mean=(1.0, 2.0)), ONE, "--mean: 2 numbers for 3 channels"),
        (Preprocessing("NCHW", 1.0, std=(0.0,)), ONE, "--std: expected numbers other than 0"),
        (Preprocessing("NCHW", 1.0, crop=(0,)), ONE, "--crop: expected a size"),
        (Preprocessing("NCHW", 1.0, crop=(9, 9)), ONE, "0.png is 8x6, less than --crop 9x9"),
        (Preprocessing("NCHW", 1.0, resize=(5, 5)), ONE, "0.png is [3, 5, 5], the model takes"),
        (SAID, X, "images need a model with one input of four axes, this has x float32[-1, 4]"),
        (SAID, Port("i", "uint8", (1, 3, 8, 6)), "takes pixels as they are: expected --scale 1"),
    ],
)  # fmt: skip
def test_images_that_do_not_fit(
    tmp_path: Path, said: Preprocessing, port: Port, message: str
) -> None:
    """A missing or unfit setting is refused with a message that names it."""
    folder = paint(tmp_path / "images")
    with pytest.raises(ValueError, match=re.escape(message)):
        open_data(folder, (port,), (OUT,), None, said).read(0, 1)


def test_unreadable_images_and_no_images(tmp_path: Path) -> None:
    """A file that is no image, images of several sizes, and a folder without any."""
    folder = paint(tmp_path / "images")
    (folder / "dog" / "broken.png").write_bytes(b"no image")
    dataset = open_data(folder, (ONE,), (OUT,), None, SAID)
    with pytest.raises(ValueError, match=r"dog/broken\.png cannot be read as an image"):
        dataset.read(0, 4)
    (tmp_path / "none").mkdir()
    with pytest.raises(ValueError, match="none: there is no image in it"):
        open_data(tmp_path / "none", (ONE,), (OUT,), None, SAID)
    sizes = paint(tmp_path / "sizes", [(6, 8), (6, 8), (7, 8)])
    free, out = Port("image", "float32", (-1, 3, -1, -1)), Port("out", "float32", (-1, 10))
    said = Preprocessing("NCHW", 1.0, mean=(0.0, 0.0, 0.0))
    with pytest.raises(ValueError, match="images differ in size, and the model leaves it open"):
        open_data(sizes, (free,), (out,), None, said).read(0, 3)
    with pytest.raises(ValueError, match="not every image lies in a folder of its class"):
        open_data(folder / "cat", (ONE,), (OUT,), "folders", SAID)


def test_preprocessing_beside_the_model(tmp_path: Path) -> None:
    """The JSON beside the model sets what options leave open; an unknown key in it is refused."""
    model = tmp_path / "net.onnx"
    assert read_preprocessing(model) == Preprocessing()
    beside = tmp_path / "net.json"
    beside.write_text(json.dumps({"layout": "nchw", "scale": 0.1, "resize": 256, "mean": [1, 2]}))
    assert read_preprocessing(model) == Preprocessing("NCHW", 0.1, (256,), None, (1.0, 2.0))
    merged = Preprocessing(scale=2.0).over(read_preprocessing(model))
    assert (merged.layout, merged.scale) == ("NCHW", 2.0)
    for content, message in (
        ("{", "net.json is no JSON that can be read"),
        ('{"sise": 1}', "net.json: expected an object of crop, layout, mean, resize, scale, std"),
        ('{"scale": "big"}', "net.json: expected numbers, or lists of them, and a layout"),
    ):
        beside.write_text(content)
        with pytest.raises(ValueError, match=re.escape(message)):
            read_preprocessing(model)


@pytest.mark.parametrize("module", ["pyarrow", "PIL"])
def test_what_the_extra_brings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    """Without the extra, Parquet and images name what to install."""
    folder, table = paint(tmp_path / "images"), parquet(x=ROWS.tolist())(tmp_path)
    monkeypatch.setitem(sys.modules, module, None)
    data, inputs = (folder, (ONE,)) if module == "PIL" else (table, (X,))
    with pytest.raises(ValueError, match=re.escape(pip_install("data"))):
        open_data(data, inputs, (OUT,), None, SAID)
