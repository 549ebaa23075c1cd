# SPDX-License-Identifier: Apache-2.0
"""C for a hosted network: the files and C-defines of X-CUBE-AI's generator.

The files hold the model and its weights; the network itself runs on a server, through
libnnpa_network. Source: X-CUBE-AI 7.0 Embedded Inference Client API, "AI_<NAME>_XXX C-defines",
"Split weights buffer", "Versioning and checking".
"""

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from nnpa.network.v1 import network_pb2 as pb

from nnpa_client.network.buffers import from_wire
from nnpa_client.network.calls import Options, create_header
from nnpa_client.network.formats import Format, fmt_get
from nnpa_client.network.hosted import Network
from nnpa_client.network.onnx_weights import weights_of

_BYTES_PER_LINE = 12
_PUBLIC = {one for one in Format if one.name not in ("U32", "U64", "S32", "S64")} - {
    Format.FLOAT16, Format.FLOAT64}  # fmt: skip
_FILES = {"{}.h": "network.h", "{}.c": "network.c", "{}_data.h": "data.h", "{}_data.c": "data.c",
          "{}_config.h": "config.h"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Tensor:
    """An input or output as its C-defines tell it; `format` is C's expression."""

    format: str
    height: int
    width: int
    channels: int
    size: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class End:
    """Inputs or outputs: the words of their C-defines, and what they describe."""

    kind: str
    title: str
    in_activations: bool
    tensors: tuple[Tensor, ...]


@dataclass(frozen=True, slots=True)
class Piece:
    """One tensor of split weights: C symbol, what it is in the model, and its bytes as C rows."""

    symbol: str
    label: str
    nbytes: int
    rows: str


def rows(data: bytes) -> str:
    """Return bytes as the rows of a C array."""
    lines = (data[at : at + _BYTES_PER_LINE] for at in range(0, len(data), _BYTES_PER_LINE))
    text = ",\n".join("  " + ", ".join(f"0x{one:02x}" for one in line) for line in lines)
    return text or "  0x00"


def _tensor(message: pb.Buffer) -> Tensor:
    buffer = from_wire(message)
    word = fmt_get(buffer.format)
    known = word in _PUBLIC
    name = f"AI_BUFFER_FORMAT_{Format(word).name}" if known else f"0x{word:08X}"
    dims = buffer.height, buffer.width, buffer.channels
    return Tensor(name, *dims, buffer.size, buffer.nbytes)


def _pieces(name: str, told: pb.NetworkReport, parts: Sequence[bytes]) -> Iterator[Piece]:
    taken: set[str] = set()
    for index, (one, part) in enumerate(zip(told.weights, parts, strict=True)):
        words = re.sub(r"\W", "_", one.name, flags=re.ASCII)
        symbol = f"s_{name}_{words}_array_weights"
        symbol = f"s_{name}_{index}_{words}_array_weights" if symbol in taken else symbol
        taken.add(symbol)
        shape = "x".join(map(str, one.shape)) or "scalar"
        yield Piece(symbol, f"{words} - {one.dtype} {shape}", len(part), rows(part))


def _blob(told: pb.NetworkReport, parts: Sequence[bytes]) -> bytes:
    blob = bytearray(told.params.channels)
    for one, part in zip(told.weights, parts, strict=True):
        blob[one.offset : one.offset + len(part)] = part
    return bytes(blob)


def _facts(net: Network, model: bytes, origin: str, options: Options) -> dict[str, Any]:
    """Return what the templates ask for."""
    told, name = net.report(), net.c_name
    parts = tuple(weights_of(model, told))
    blob = _blob(told, parts)
    header = create_header(name, options)
    header.onnx_bytes = len(model)
    hashed = b"".join(parts) if options.split_weights else blob
    ends = [
        End("IN", "INPUTS", options.allocate_inputs, tuple(map(_tensor, told.inputs))),
        End("OUT", "OUTPUTS", options.allocate_outputs, tuple(map(_tensor, told.outputs))),
    ]
    words = re.sub(r"[^ -~]|[\"\\*/?]", "_", origin)
    return {
        "name": name,
        "guard": f"AI_{name.upper()}",
        "origin": words,
        "origin_stem": words.rpartition(".")[0] or words,
        "revision": told.tool_revision,
        "signature": told.model_signature,
        "n_nodes": told.n_nodes,
        "tool": told.tool_version,
        "api": told.api_version,
        "tools_api": told.tool_api_version,
        "ends": ends,
        "header": rows(header.SerializeToString(deterministic=True)),
        "model": rows(model),
        "sha256": rows(hashlib.sha256(hashed).digest()),
        "split": options.split_weights,
        "pieces": list(_pieces(name, told, parts)) if options.split_weights else [],
        "weights": "" if options.split_weights else rows(blob),
        "weights_size": told.params.channels,
        "activations_size": told.activations.channels,
    }


def generated(net: Network, model: bytes, origin: str, options: Options) -> dict[str, str]:
    """Return the text of each file by its name.

    `net` is the network made from `model`, an ONNX file called `origin`, with these options.
    Raises ValueError for weights that are not in the file as the server has them.
    """
    facts = _facts(net, model, origin, options)
    environment = Environment(
        loader=PackageLoader("nnpa_client.network"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # C, not HTML
    )
    return {
        path.format(net.c_name): environment.get_template(f"{template}.jinja").render(facts)
        for path, template in _FILES.items()
    }
