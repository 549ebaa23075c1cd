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

from jinja2 import Environment, PackageLoader, StrictUndefined
from nnpa.network.v1 import network_pb2 as pb
from nnpa_client.network.buffers import from_wire
from nnpa_client.network.calls import Options, create_header
from nnpa_client.network.formats import Format, fmt_get
from nnpa_client.network.hosted import Network

from nnpa_tools.models.onnx_weights import weights_of

_BYTES_PER_LINE = 12
_PUBLIC = {fmt for fmt in Format if fmt.name not in ("U32", "U64", "S32", "S64")} - {
    Format.FLOAT16, Format.FLOAT64}  # fmt: skip
_FILES = {"{}.h": "network.h", "{}.c": "network.c", "{}_data.h": "data.h", "{}_data.c": "data.c",
          "{}_config.h": "config.h"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Tensor:
    """An input or output in C-defines; `format` is an expression of C."""

    format: str
    height: int
    width: int
    channels: int
    size: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class End:
    """The inputs or the outputs: the words of their C-defines, and their tensors."""

    kind: str
    title: str
    in_activations: bool
    tensors: tuple[Tensor, ...]


@dataclass(frozen=True, slots=True)
class Piece:
    """One tensor of split weights: C symbol, label with name and shape, bytes as C rows."""

    symbol: str
    label: str
    nbytes: int
    rows: str


def _plain(text: str) -> str:
    """Return a text of a file or server as comments and strings of C may have it."""
    return re.sub(r"[^ -~]|[\"\\*/?]", "_", text)


def rows(data: bytes) -> str:
    """Return bytes as the rows of a C array."""
    lines = (data[at : at + _BYTES_PER_LINE] for at in range(0, len(data), _BYTES_PER_LINE))
    text = ",\n".join("  " + ", ".join(f"0x{byte:02x}" for byte in line) for line in lines)
    return text or "  0x00"


def _tensor(message: pb.Buffer) -> Tensor:
    buffer = from_wire(message)
    word = fmt_get(buffer.format)
    name = f"AI_BUFFER_FORMAT_{Format(word).name}" if word in _PUBLIC else f"0x{word:08X}"
    dims = buffer.height, buffer.width, buffer.channels
    return Tensor(name, *dims, buffer.size, buffer.nbytes)


def _pieces(name: str, report: pb.NetworkReport, parts: Sequence[bytes]) -> Iterator[Piece]:
    symbols: set[str] = set()
    for index, (weight, part) in enumerate(zip(report.weights, parts, strict=True)):
        words = re.sub(r"\W", "_", weight.name, flags=re.ASCII)
        symbol = f"s_{name}_{words}_array_weights"
        symbol = f"s_{name}_{index}_{words}_array_weights" if symbol in symbols else symbol
        symbols.add(symbol)
        shape = "x".join(map(str, weight.shape)) or "scalar"
        label = f"{words} - {_plain(weight.dtype)} {shape}"
        yield Piece(symbol, label, len(part), rows(part))


def _blob(report: pb.NetworkReport, parts: Sequence[bytes]) -> bytes:
    blob = bytearray(report.params.channels)
    for weight, part in zip(report.weights, parts, strict=True):
        blob[weight.offset : weight.offset + len(part)] = part
    return bytes(blob)


def _variables(net: Network, model: bytes, origin: str, options: Options) -> dict[str, object]:
    """Return the variables of the templates."""
    net.export_program(contents=False)  # refused where free dims have no sizes, as buffers need
    report, name = net.report(), net.c_name
    parts = tuple(weights_of(model, report))
    blob = _blob(report, parts)
    header = create_header(name, options)
    header.onnx_bytes = len(model)
    hashed = b"".join(parts) if options.split_weights else blob
    ends = [
        End("IN", "INPUTS", options.allocate_inputs, tuple(map(_tensor, report.inputs))),
        End("OUT", "OUTPUTS", options.allocate_outputs, tuple(map(_tensor, report.outputs))),
    ]
    words = _plain(origin)
    return {
        "name": name,
        "guard": f"AI_{name.upper()}",
        "origin": words,
        "origin_stem": words.rpartition(".")[0] or words,
        "revision": _plain(report.tool_revision),
        "signature": _plain(report.model_signature),
        "n_nodes": report.n_nodes,
        "tool": report.tool_version,
        "api": report.api_version,
        "tools_api": report.tool_api_version,
        "ends": ends,
        "header": rows(header.SerializeToString(deterministic=True)),
        "model": rows(model),
        "sha256": rows(hashlib.sha256(hashed).digest()),
        "split": options.split_weights,
        "pieces": list(_pieces(name, report, parts)) if options.split_weights else [],
        "weights": "" if options.split_weights else rows(blob),
        "weights_size": report.params.channels,
        "activations_size": report.activations.channels,
    }


def generated(net: Network, model: bytes, origin: str, options: Options) -> dict[str, str]:
    """Generate the files; return their texts by name.

    `net` was created with these options from `model`, the contents of the ONNX file `origin`.
    Raises ValueError where the file's weights differ from the server's.
    """
    variables = _variables(net, model, origin, options)
    environment = Environment(
        loader=PackageLoader("nnpa_tools.models"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # C, not HTML
    )
    return {
        path.format(net.c_name): environment.get_template(f"{template}.jinja").render(variables)
        for path, template in _FILES.items()
    }
