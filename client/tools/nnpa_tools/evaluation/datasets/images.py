# SPDX-License-Identifier: Apache-2.0
"""Folders of images; options say how they become an input, nothing is guessed.

An image is decoded to RGB (or gray), resized by bilinear interpolation, cropped in the middle, and
each pixel p of 0 to 255 becomes (p * scale - mean) / std.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from nnpa_client._values.display import counted
from nnpa_client._values.user_arrays import Array
from nnpa_client.network.hosted import Port

from nnpa_tools.evaluation.datasets.rows import Dataset, describe, run_together
from nnpa_tools.evaluation.datasets.tables import NEEDS_DATA

_KINDS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm")
_MODES = {1: "L", 3: "RGB"}
_LAYOUTS = ("NCHW", "NHWC")
_IMAGE_RANK = 4


@dataclass(frozen=True, slots=True)
class Preprocessing:
    """The steps that turn images into an input.

    `resize` and `crop` are (height, width), or one number: for `resize` the shorter side, for
    `crop` both sides. `mean` and `std` have one number, or one per channel.
    """

    layout: str | None = None
    scale: float | None = None
    resize: tuple[int, ...] | None = None
    crop: tuple[int, ...] | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None

    def lines(self) -> dict[str, str]:
        """Return the lines of a report on the preprocessing."""
        return {name: _text(value) for name, value in asdict(self).items()}

    def over(self, other: "Preprocessing") -> "Preprocessing":
        """Return this preprocessing, completed by `other`."""
        chosen = {name: value for name, value in asdict(self).items() if value is not None}
        return replace(other, **chosen)


def _text(value: object) -> str:
    if value is None:
        return "none"
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def read_preprocessing(model: Path) -> Preprocessing:
    """Return the preprocessing in `model.json` beside `model.onnx`; an empty one without the file.

    Raises ValueError for other contents.
    """
    path = model.with_suffix(".json")
    if not path.is_file():
        return Preprocessing()
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise ValueError(f"{path.name} is no JSON that can be read") from error
    names = {part.name for part in fields(Preprocessing)}
    if not isinstance(entries, dict) or not names.issuperset(entries):
        raise ValueError(f"{path.name}: expected an object of {', '.join(sorted(names))}")
    return parse_preprocessing(entries, path.name)


def parse_preprocessing(entries: Mapping[str, Any], source: str) -> Preprocessing:
    """Return preprocessing of JSON's values; raise ValueError."""
    try:
        return Preprocessing(
            None if entries.get("layout") is None else str(entries["layout"]).upper(),
            None if entries.get("scale") is None else float(entries["scale"]),
            *(_numbers(entries.get(name), int) for name in ("resize", "crop")),
            *(_numbers(entries.get(name), float) for name in ("mean", "std")),
        )
    except (TypeError, ValueError) as error:
        text = "expected numbers, or lists of them, and a layout"
        raise ValueError(f"{source}: {text}") from error


def _numbers(value: Any, kind: Any) -> Any:
    if value is None:
        return None
    return tuple(kind(each) for each in (value if isinstance(value, list | tuple) else [value]))


def find_images(folder: Path) -> list[Path]:
    """Return the images of a folder and its subfolders, by name; raise ValueError without any."""
    files = sorted(path for path in folder.rglob("*") if path.suffix.lower() in _KINDS)
    if not files:
        raise ValueError(f"{folder.name}: there is no image in it ({', '.join(_KINDS)})")
    return files


def image_rows(
    files: Sequence[Path],
    folder: Path,
    preprocessing: Preprocessing,
    inputs: Sequence[Port],
    outputs: Sequence[Port],
) -> Dataset:
    """Return images as the rows of a model's only input; raise ValueError."""
    port = _image_port(inputs)
    _require_all(preprocessing, port)
    channels, size = _expected(port, preprocessing)
    together = run_together(inputs, outputs)

    def read(first: int, last: int) -> dict[str, Array]:
        rows = [_pixels(path, folder, channels, preprocessing, port) for path in files[first:last]]
        shapes = {row.shape: files[first + index].name for index, row in enumerate(rows)}
        if len(shapes) > 1 or (size is None and rows[0].shape != shape):
            raise ValueError(_different(shapes | {shape: files[0].name}))
        for row, path in zip(rows, files[first:last], strict=True):
            _require_size(row, port, path.name)
        stacked = np.stack(rows)
        return {port.name: stacked if together else stacked[:, None]}

    shape = _pixels(files[0], folder, channels, preprocessing, port).shape
    about = {"data": f"{counted(len(files), 'image')} of {folder.name}"}
    return Dataset(
        len(files), read, {**about, **preprocessing.lines(), "interpolation": "bilinear"}
    )


def _image_port(inputs: Sequence[Port]) -> Port:
    if len(inputs) != 1 or len(inputs[0].shape) != _IMAGE_RANK:
        text = ", ".join(map(describe, inputs))
        raise ValueError(f"images need a model with one input of four axes, this has {text}")
    return inputs[0]


def _require_all(preprocessing: Preprocessing, port: Port) -> None:
    """Raise ValueError for preprocessing that is incomplete, or contradicts the input."""
    missing = [name for name in ("layout", "scale") if getattr(preprocessing, name) is None]
    if missing:
        options = " and ".join(f"--{name}" for name in missing)
        raise ValueError(f"images need {options}, given or in the JSON beside the model")
    if preprocessing.layout not in _LAYOUTS:
        raise ValueError(f"--layout {preprocessing.layout}: expected {' or '.join(_LAYOUTS)}")
    for name in ("resize", "crop"):
        numbers = getattr(preprocessing, name)
        if numbers is not None and (len(numbers) not in (1, 2) or min(numbers) < 1):
            raise ValueError(f"--{name}: expected a size, or height and width")
    if preprocessing.std is not None and 0 in preprocessing.std:
        raise ValueError("--std: expected numbers other than 0")
    if np.dtype(port.dtype).kind != "f":
        changes = (preprocessing.scale != 1, preprocessing.mean, preprocessing.std)
        if any(changes):
            text = f"input {describe(port)} takes pixels as they are"
            raise ValueError(f"{text}: expected --scale 1, no --mean and no --std")


def _expected(port: Port, preprocessing: Preprocessing) -> tuple[int, tuple[int, int] | None]:
    """Return the channels of an input, and its height and width if both are fixed."""
    first = preprocessing.layout == "NCHW"
    channels = port.shape[1] if first else port.shape[3]
    height, width = port.shape[2:] if first else port.shape[1:3]
    if channels == -1:
        channels = len(preprocessing.mean or preprocessing.std or ())
    if channels not in _MODES:
        text = f"input {describe(port)}, {preprocessing.layout}: {channels} channels"
        raise ValueError(f"{text}, expected 1 or 3; is the layout right?")
    for name in ("mean", "std"):
        numbers = getattr(preprocessing, name)
        if numbers is not None and len(numbers) not in (1, channels):
            raise ValueError(f"--{name}: {len(numbers)} numbers for {channels} channels")
    return channels, None if -1 in (height, width) else (height, width)


def _pixels(
    path: Path, folder: Path, channels: int, preprocessing: Preprocessing, port: Port
) -> Array:
    """Return an image as a row of the input."""
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError as error:
        raise ValueError(f"images need Pillow: {NEEDS_DATA}") from error
    try:
        with Image.open(path) as image:
            picture = image.convert(_MODES[channels])
    except (UnidentifiedImageError, OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise ValueError(f"{path.relative_to(folder)} cannot be read as an image") from error
    if preprocessing.resize is not None:
        size = _resized(picture.size, preprocessing.resize)
        picture = picture.resize(size, Image.Resampling.BILINEAR)
    if preprocessing.crop is not None:
        picture = picture.crop(_middle(picture.size, preprocessing.crop, path.name))
    pixels: Array = np.asarray(picture).reshape(picture.size[1], picture.size[0], channels)
    if np.dtype(port.dtype).kind == "f":
        scaled = pixels.astype(np.float32) * np.float32(preprocessing.scale)
        mean, std = preprocessing.mean or (0.0,), preprocessing.std or (1.0,)
        pixels = (scaled - np.array(mean, np.float32)) / np.array(std, np.float32)
    pixels = pixels.astype(port.dtype)
    is_first = preprocessing.layout == "NCHW"
    return np.ascontiguousarray(pixels.transpose(2, 0, 1)) if is_first else pixels


def _resized(size: tuple[int, int], resize: Sequence[int]) -> tuple[int, int]:
    """Return width and height after resizing to both sizes, or by the shorter side."""
    if len(resize) > 1:
        return resize[1], resize[0]
    width, height = size
    shorter = min(size)
    return max(1, round(width * resize[0] / shorter)), max(1, round(height * resize[0] / shorter))


def _middle(size: tuple[int, int], crop: Sequence[int], name: str) -> tuple[int, int, int, int]:
    height, width = (crop[0], crop[-1])
    if width > size[0] or height > size[1]:
        raise ValueError(f"{name} is {size[1]}x{size[0]}, less than --crop {height}x{width}")
    left, top = (size[0] - width) // 2, (size[1] - height) // 2
    return left, top, left + width, top + height


def _require_size(row: Array, port: Port, name: str) -> None:
    if any(dim not in (-1, size) for size, dim in zip(row.shape, port.shape[1:], strict=True)):
        text = f"{name} is {list(row.shape)}, the model takes {describe(port)}"
        raise ValueError(f"{text}: give --resize or --crop")


def _different(shapes: Mapping[tuple[int, ...], str]) -> str:
    both = [f"{name} is {list(shape)}" for shape, name in list(shapes.items())[:2]]
    return f"images differ in size, and the model leaves it open: {', '.join(both)}: give --resize"
