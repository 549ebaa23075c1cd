# SPDX-License-Identifier: Apache-2.0
"""The reprs of ztensors, descriptors, machines and sessions, as a line and as a table in HTML.

This package returns messages of the contract, so this module adds both to their classes. Neither
shows a session's name, which gives access to it.
"""

import base64
import html
import math
import struct
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from nnpa.zdnn.v1 import accelerator_pb2, tensor_pb2
from nnpa.zdnn.v1.tensor_pb2 import (
    ZDNN_BINARY_INT8,
    ZDNN_BINARY_INT32,
    DataFormats,
    DataLayouts,
    DataTypes,
    TensorDesc,
)

from nnpa_client._values.fields import enum_name
from nnpa_client._values.user_arrays import dims, layout_shape

_ROWS, _CELLS = 32, 64  # of a page of sticks
_CELL_BYTES = {ZDNN_BINARY_INT8: 1, ZDNN_BINARY_INT32: 4}
_SCALE = 4  # pixels of a cell in the picture
_PADDING = (224, 224, 224)


def described(desc: TensorDesc) -> str:
    """Return layout, sizes and type: "ZDNN_2D 2x3 FP32"."""
    layout = enum_name(DataLayouts.DESCRIPTOR, desc.layout)
    shape = layout_shape(desc) or dims(desc)
    return f"{layout} {'x'.join(map(str, shape))} {enum_name(DataTypes.DESCRIPTOR, desc.type)}"


def counted(count: int, noun: str) -> str:
    """Return a count and its noun, in the plural unless it is 1: "1 call", "1,024 statuses"."""
    ending = "" if count == 1 else "es" if noun.endswith("s") else "s"
    return f"{count:,} {noun}{ending}"


def machine_name(machine: accelerator_pb2.Machine) -> str:
    """Return a machine's name as `connect` takes it, "custom" for one that has none."""
    return machine.name.removeprefix("machines/") or "custom"


def table(title: str, rows: Mapping[str, object]) -> str:
    """Return a table in HTML, a row for each fact."""
    cells = "".join(
        f"<tr><th style='text-align:left'>{html.escape(name)}</th>"
        f"<td style='text-align:left'>{html.escape(str(value))}</td></tr>"
        for name, value in rows.items()
    )
    return f"<table><caption>{html.escape(title)}</caption>{cells}</table>"


def padding_share(structure: tensor_pb2.Ztensor) -> float:
    """Return the share of a buffer's cells that is padding, 0 to 1."""
    tfrmd, pre = structure.transformed_desc, structure.pre_transformed_desc
    cells = structure.buffer_size // _CELL_BYTES.get(tfrmd.type, 2)
    used = math.prod(layout_shape(pre) or dims(tfrmd))
    return 1 - used / cells if cells else 0.0


def ztensor_table(structure: tensor_pb2.Ztensor, sticks: npt.NDArray[np.uint8] | None) -> str:
    """Return a ztensor in HTML, with a picture of the first page of its sticks."""
    facts = {
        "yours": described(structure.pre_transformed_desc),
        "sticks": described(structure.transformed_desc),
        "format": enum_name(DataFormats.DESCRIPTOR, structure.transformed_desc.format),
        "bytes": f"{structure.buffer_size}, {padding_share(structure):.1%} of the cells padding",
        "transformed": "yes" if structure.is_transformed else "no",
    }
    if structure.rec_scale:
        facts["quantized"] = f"rec_scale {structure.rec_scale:g}, offset {structure.offset:g}"
    shown = table("Ztensor", facts)
    if sticks is None or not sticks.size:
        return shown
    source = f"data:image/png;base64,{_page(sticks, structure)}"
    return f"{shown}<img alt='first page of sticks' src='{source}'>"


def _page(sticks: npt.NDArray[np.uint8], structure: tensor_pb2.Ztensor) -> str:
    """Return the first page as a heat map: 32 sticks, dark cells large, padding grey; PNG."""
    tfrmd = structure.transformed_desc
    size = _CELL_BYTES.get(tfrmd.type, 2)
    cells = sticks[: _ROWS * _CELLS * 2].view(f"<u{size}").reshape(_ROWS, -1).astype(np.int64)
    top = (1 << (8 * size - 1)) - 1
    magnitude = cells & top  # of a DLFLOAT16, its exponent and fraction: like a logarithm
    least, most = int(magnitude.min()), int(magnitude.max())
    heat = (255 * (magnitude - least) // max(most - least, 1)).astype(np.uint8)
    picture = np.stack([255 - heat, 255 - heat // 2, np.full_like(heat, 255)], axis=-1)
    picture[tfrmd.dim2 :] = _PADDING
    picture[:, tfrmd.dim1 :] = _PADDING
    large = picture.repeat(_SCALE, axis=0).repeat(_SCALE, axis=1)
    return base64.b64encode(_png(large)).decode("ascii")


def _png(picture: npt.NDArray[np.uint8]) -> bytes:
    """Encode (height, width, 3) as PNG. Source: PNG specification, third edition, 5 and 11."""
    height, width, _colours = picture.shape
    lines = np.zeros((height, 1 + 3 * width), np.uint8)  # each begins with its filter: none
    lines[:, 1:] = picture.reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(lines.tobytes())), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )


def _desc_repr(desc: TensorDesc) -> str:
    return f"<TensorDesc {described(desc)}>"


def _desc_facts(desc: TensorDesc) -> dict[str, object]:
    return {
        "layout": enum_name(DataLayouts.DESCRIPTOR, desc.layout),
        "format": enum_name(DataFormats.DESCRIPTOR, desc.format),
        "type": enum_name(DataTypes.DESCRIPTOR, desc.type),
        "dim4 to dim1": ", ".join(map(str, dims(desc))),
    }


def _machine_repr(machine: accelerator_pb2.Machine) -> str:
    functions = counted(len(machine.functions), "function") if machine.nnpa_installed else "no NNPA"
    names = ", ".join((machine_name(machine), *machine.aliases))
    return f"<Machine {names}: {machine.display_name}, {functions}>"


def _machine_facts(machine: accelerator_pb2.Machine) -> dict[str, object]:
    return {
        "name": machine_name(machine),
        "aliases": ", ".join(machine.aliases),
        "machine": machine.display_name,
        "functions": len(machine.functions),
        "largest dim4 to dim1": ", ".join(
            str(size or machine.max_dim_idx_size)
            for size in (machine.max_dim4, machine.max_dim3, machine.max_dim2, machine.max_dim1)
        ),
        "largest tensor": f"{machine.max_tensor_size} bytes",
    }


def _session_repr(session: accelerator_pb2.Session) -> str:
    return (
        f"<Session of {machine_name(session.machine)}, zDNN {session.library_version}: "
        f"{counted(session.tensor_count, 'tensor')}, {session.stored_bytes} bytes>"
    )


def session_facts(session: accelerator_pb2.Session) -> dict[str, object]:
    """Return the facts that the table of a session shows."""
    return {
        "machine": f"{machine_name(session.machine)}, {session.machine.display_name}",
        "zDNN": session.library_version,
        "tensors": session.tensor_count,
        "bytes held": session.stored_bytes,
        "server": f"nnpa-server {session.server_version}",
    }


def _show(
    message: Any,
    repr_of: Callable[[Any], str],
    facts: Callable[[Any], Mapping[str, object]],
) -> None:
    """Add a repr and a table to a class of messages."""

    def html_of(shown: Any) -> str:
        return table(message.DESCRIPTOR.name, facts(shown))

    message.__repr__ = repr_of
    message._repr_html_ = html_of


def _text_without_name(session: Any) -> str:
    """Return a session as protobuf writes it, without its name."""
    shown = accelerator_pb2.Session()
    shown.CopyFrom(session)
    shown.ClearField("name")
    return _session_text(shown)


_session: Any = accelerator_pb2.Session
_session_text: Callable[[object], str] = _session.__str__
_session.__str__ = _text_without_name
_show(TensorDesc, _desc_repr, _desc_facts)
_show(accelerator_pb2.Machine, _machine_repr, _machine_facts)
_show(accelerator_pb2.Session, _session_repr, session_facts)
