# SPDX-License-Identifier: Apache-2.0
"""A network's report: the placement, then the layout of X-CUBE-AI: header lines, layers.

Source of the layout: the analyze report of X-CUBE-AI 7.0's command line. RAM is the memory of the
emulated accelerator: sticks in pages of 4096 bytes.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from google.protobuf.json_format import MessageToDict
from nnpa.network.v1 import network_pb2 as pb
from nnpa.network.v1.program_pb2 import PLACEMENT_ALL, PLACEMENT_COMPILER, Node
from nnpa_client._values.availability import MACHINES
from nnpa_client._values.display import counted
from nnpa_client.network.buffers import from_wire
from nnpa_client.network.formats import Format, fmt_get
from rich.table import Table

from nnpa_tools.estimates.intervals import Interval
from nnpa_tools.estimates.programs import NetworkTimes
from nnpa_tools.tables import simple_table

_DEVICES = {"accelerator": "zAIU", "host": "host CPU", "folded": "-"}
_WHERE = {
    "accelerator": "on the accelerator",
    "host": "on the host CPU",
    "folded": "folded at import",
}
_LAYER_HEADINGS = ("id", "layer (type)", "oshape", "param/size", "macc", "connected to", "device",
                   "time on the machine", "zDNN functions, or why not")  # fmt: skip
_PLACEMENTS = {PLACEMENT_COMPILER: "compiler", PLACEMENT_ALL: "all"}
# Operators with most of a network's multiplications: the headline names those on the host.
_HEAVY = ("Conv", "ConvTranspose", "MatMul", "Gemm", "LSTM", "GRU", "RNN")


def header(
    report: pb.NetworkReport, model: str, shape: Mapping[str, str], times: NetworkTimes | None
) -> Iterator[str]:
    """Yield the lines before the tables; `shape` has further lines by heading.

    `times` are estimates of the machine's time, or None.
    """
    yield from _answer(report, times)
    yield ""
    yield from (
        f"model file         : {model}",
        "type               : onnx",
        f"c_name             : {report.model_name}",
        "compression        : None",
        "quantize           : None",
        f"machine            : {report.machine}",
        f"model_name         : {model.partition('.')[0]}",
        f"model_hash         : {report.model_signature}",
    )
    for kind, buffers in (("input", report.inputs), ("output", report.outputs)):
        for index, message in enumerate(buffers, 1):
            yield f"{f'{kind} {index}/{len(buffers)}':<19}: {_describe(message)}"
    yield from (f"{name:<19}: {text}" for name, text in shape.items())
    yield from _sizes(report)


def _answer(report: pb.NetworkReport, times: NetworkTimes | None) -> Iterator[str]:
    """Yield the verdict, the work and weights by device, the memory and the time."""
    by_device = {device: [node for node in report.nodes if node.device == device]
                 for device in _WHERE}  # fmt: skip
    yield _verdict(report, by_device)
    yield from _reasons(by_device["host"])
    for device, where in _WHERE.items():
        yield f"{where:<19}: {_work(by_device[device])}"
    inputs, outputs = io_bytes(report)
    yield (
        f"{'memory':<19}: {report.params.channels:,} B of weights, "
        f"{report.activations.channels:,} B of activations, {inputs + outputs:,} B of inputs and "
        "outputs"
    )
    if times is not None:
        yield f"time on the machine: {times.total.graded}, by public figures (nnpa estimate)"


def _verdict(report: pb.NetworkReport, by_device: Mapping[str, Sequence[Node]]) -> str:
    accelerated, host = by_device["accelerator"], by_device["host"]
    if not accelerated:
        return "Nothing of this model runs on the accelerator."
    machine = machine_title(report.machine)
    if not host:
        return f"All of this model runs on the accelerator of {machine}."
    return (
        f"{len(accelerated):,} of {counted(len(accelerated) + len(host), 'operator')} run on the "
        f"accelerator of {machine}, with {_share(report):.1%} of the multiply-accumulates (MACC)."
    )


def _reasons(host: Iterable[Node]) -> Iterator[str]:
    """Yield why operators run on the host, those with the same reason together."""
    why = Counter((node.op_type, node.reason) for node in host)
    for (operator, reason), count in sorted(why.items()):
        yield f"  {operator} ({count:,}): {reason}"


def _work(nodes: Sequence[Node]) -> str:
    if not nodes:
        return "nothing"
    weights = sum(node.weights for node in nodes)
    count = counted(len(nodes), "operator")
    return f"{count}, {_macc(nodes):,} MACC, {weights:,} B of weights: {_operators(nodes)}"


def _operators(nodes: Iterable[Node]) -> str:
    return ", ".join(sorted({node.op_type for node in nodes}))


def _share(report: pb.NetworkReport) -> float:
    """Return the share of the multiply-accumulates of a run that the accelerator does."""
    accelerated = _macc(node for node in report.nodes if node.device == "accelerator")
    return accelerated / (_macc(node for node in report.nodes if node.device != "folded") or 1)


def _macc(nodes: Iterable[Node]) -> int:
    return sum(node.macc for node in nodes)


def machine_title(name: str) -> str:
    """Return a machine's name, with its title unless it is custom."""
    return f"{name} ({MACHINES[name].title})" if name in MACHINES else name


def _describe(message: pb.Buffer) -> str:
    buffer = from_wire(message)
    name = Format(fmt_get(buffer.format)).name
    meta = buffer.meta_info
    scale = "" if meta is None else f", scale={meta.scale:g}, zero={meta.zero_point}"
    dims = (buffer.height, buffer.width, buffer.channels)
    where = ", in activations" if message.HasField("activations_offset") else ""
    return f"{buffer.size} items, {buffer.nbytes} B, {name}{scale}, {dims}{where}"


def _sizes(report: pb.NetworkReport) -> Iterator[str]:
    inputs, outputs = io_bytes(report)
    rom, ram = report.params.channels, report.activations.channels
    items = sum(int(np.prod(weight.shape)) for weight in report.weights)
    yield f"params #           : {items:,} items"
    yield f"macc               : {report.n_macc_64:,}"
    yield f"weights (ro)       : {rom:,} B"
    yield f"activations (rw)   : {ram:,} B"
    yield f"ram (total)        : {ram + inputs + outputs:,} B = {ram:,} + {inputs:,} + {outputs:,}"
    yield f"placement          : {headline(report)}"


def io_bytes(report: pb.NetworkReport) -> tuple[int, int]:
    """Return the bytes of the inputs and of the outputs that are not in the activations."""
    return _bytes_outside(report.inputs), _bytes_outside(report.outputs)


def _bytes_outside(buffers: Iterable[pb.Buffer]) -> int:
    return sum(
        from_wire(buffer).nbytes for buffer in buffers if not buffer.HasField("activations_offset")
    )


def headline(report: pb.NetworkReport) -> str:
    """Return one line: nodes and macc by device, and the heavy operators on the host."""
    counts = {device: sum(node.device == device for node in report.nodes) for device in _DEVICES}
    text = (
        f"{placement(report)}: {counted(counts['accelerator'], 'node')} on the accelerator "
        f"({_share(report):.1%} of macc), {counts['host']} on the host, {counts['folded']} folded"
    )
    heavy = [node for node in report.nodes if node.device == "host" and node.op_type in _HEAVY]
    if heavy:
        text += "; heavy on the host: " + ", ".join(node.name or node.op_type for node in heavy)
    return text


def placement(report: pb.NetworkReport) -> str:
    """Return the placement option of a report, "unknown" for another compiler's report."""
    return _PLACEMENTS.get(report.placement, "unknown")


def reasons(report: pb.NetworkReport) -> Table:
    """Return the table of nodes by device and reason, largest work first."""
    headings = ("device", "nodes", "macc", "operators", "why")
    table = simple_table(headings, right=("nodes", "macc"), title="Nodes by device and reason")
    groups: dict[tuple[str, str], list[Node]] = {}
    for node in report.nodes:
        reason = node.reason if node.device == "host" else ""
        groups.setdefault((node.device, reason), []).append(node)
    order = list(_DEVICES)

    def place(item: tuple[tuple[str, str], list[Node]]) -> tuple[int, int, int, str]:
        (device, reason), nodes = item
        rank = order.index(device) if device in order else len(order)
        return rank, -_macc(nodes), -len(nodes), reason

    for (device, reason), nodes in sorted(groups.items(), key=place):
        macc = f"{_macc(nodes):,}" if _macc(nodes) else ""
        where = _WHERE.get(device, device)
        table.add_row(where, str(len(nodes)), macc, _operators(nodes), reason)
    return table


def layers(report: pb.NetworkReport, times: NetworkTimes | None) -> Table:
    """Return the table of layers: id, layer, shape, params, macc, device, time, functions or why.

    Nodes that were folded at import have no row. The time is an estimate with its grade.
    """
    table = simple_table(_LAYER_HEADINGS, right=("id", "macc"), title="Layers")
    by_node = {} if times is None else times.by_node
    producers = {name: node for node in report.nodes for name in node.outputs}
    for node in report.nodes:
        if node.device == "folded":
            continue
        sources = [producers[name] for name in node.inputs if name in producers]
        table.add_row(
            str(node.index),
            f"{node.name or '-'} ({node.op_type})",
            " ".join(str(tuple(output_shape.dims)) for output_shape in node.output_shapes),
            f"{node.weights:,} B" if node.weights else "",
            f"{node.macc:,}" if node.macc else "",
            ", ".join(dict.fromkeys(source.name or source.op_type for source in sources)),
            _DEVICES.get(node.device, node.device),
            by_node[node.index].graded if node.index in by_node else "",
            _functions_or_reason(node),
        )
    return table


def _functions_or_reason(node: Node) -> str:
    functions = ", ".join(node.functions)
    return f"{functions} ({node.reason})" if functions and node.reason else functions or node.reason


def histogram(report: pb.NetworkReport) -> Table:
    """Return the table of complexity per operator: nodes, macc, share of the macc."""
    numbers = ("nodes", "macc", "share")
    table = simple_table(("operator", *numbers, ""), numbers, title="Complexity per operator")
    total = _macc(report.nodes) or 1
    by_type: dict[str, list[Node]] = {}
    for node in report.nodes:
        by_type.setdefault(node.op_type, []).append(node)
    macc = {name: _macc(nodes) for name, nodes in by_type.items()}
    for name in sorted(macc, key=lambda op_type: -macc[op_type]):
        share = macc[name] / total
        bar = "#" * round(share * 40)
        table.add_row(name, str(len(by_type[name])), f"{macc[name]:,}", f"{share:.1%}", bar)
    return table


def as_json(
    report: pb.NetworkReport, cli_version: str, times: NetworkTimes | None
) -> dict[str, object]:
    """Return the report as JSON: keys of X-CUBE-AI's report, layers by the contract's names.

    Estimates of the machine's time stand under `estimated_machine_ns`, with a `grade`.
    """
    inputs, outputs = io_bytes(report)
    tool, api = report.tool_version, report.tool_api_version
    by_node = {} if times is None else times.by_node
    return {
        "cli_version": cli_version,
        "tools_version": f"{tool.major}.{tool.minor}.{tool.micro}",
        "tools_api_version": f"{api.major}.{api.minor}.{api.micro}",
        "hash": report.model_signature,
        "ram_size": report.activations.channels,
        "ram_io_size": [inputs, outputs],
        "rom_size": report.params.channels,
        "rom_n_macc": report.n_macc_64,
        "rom_inputs": [MessageToDict(buffer) for buffer in report.inputs],
        "rom_outputs": [MessageToDict(buffer) for buffer in report.outputs],
        "placement": placement(report),
        "placed": headline(report),
        "machine": report.machine,
        "layers": [_layer_data(node, by_node.get(node.index)) for node in report.nodes],
        **({} if times is None else times.total.as_data()),
    }


def _layer_data(node: Node, interval: Interval | None) -> dict[str, object]:
    layer: dict[str, object] = MessageToDict(node, preserving_proto_field_name=True)
    return layer if interval is None else layer | interval.as_data()
