# SPDX-License-Identifier: Apache-2.0
"""Load a model and call it like a function over NumPy arrays."""

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypedDict, Unpack

import numpy as np
import numpy.typing as npt
from nnpa.network.v1 import network_pb2 as pb
from nnpa.network.v1 import program_pb2

from nnpa_client._guest.open_session import OpenSession
from nnpa_client._server.methods import (
    EXPORT_PROGRAM,
    INFER_NETWORK,
    MEASURE_ACCURACY,
    PROBE_NETWORK,
)
from nnpa_client._values.user_arrays import TEXT, Array, join_texts, split_texts
from nnpa_client.errors import NetworkError, ZdnnWarning
from nnpa_client.network import calls
from nnpa_client.network.buffers import (
    NetworkParams,
    activations,
    default_weights,
    error_from_wire,
    raw,
)
from nnpa_client.network.calls import DEFAULT, Handle, Model, Options, Source

__tracebackhide__ = True  # pytest shows the line that called, not these

Feed: TypeAlias = npt.ArrayLike | Mapping[str, npt.ArrayLike]
"""An argument of a network: an array, or arrays by the names of inputs."""


class LoadOptions(Source, total=False):
    """The keywords of `load`."""

    c_name: str | None
    options: Options


class ProbeRun(TypedDict):
    """One run of `Network.probe`: machine, sizes, inputs and findings."""

    machine: str
    sizes: dict[str, int]
    inputs: str
    nans: int
    violations: int
    first: str
    limit: str


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output in the model's terms; -1 in `shape` is a free dim."""

    name: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Inference:
    """The result of one run: outputs by name, and its diagnostics.

    `violations` are the non-numeric values that the accelerator used or stored, `nans` counts the
    NaN elements of each output, `calls` counts the calls of each zDNN function.
    """

    outputs: Mapping[str, Array]
    violations: tuple[pb.NodeViolation, ...]
    nans: Mapping[str, int]
    calls: Mapping[str, int]


class Network:
    """A model on the accelerator, ready to be called.

        with session.load("model.onnx") as net:
            y = net(x)                      # the model's own names, shapes and types
            total, most = net(a=a, b=b)     # several inputs by name, several outputs as a tuple

    `close`, the end of the `with` block or of the session destroys it.
    """

    def __init__(self, handle: Handle, message: pb.Network) -> None:
        self.handle = handle
        self.inputs = tuple(map(_port, message.inputs))
        self.outputs = tuple(map(_port, message.outputs))
        self.c_name = message.c_name
        self.model_signature = message.model_signature
        self.machine = message.machine

    def __call__(self, *arrays: Feed, **named: npt.ArrayLike) -> Any:
        """Return the output's array, or a tuple of the outputs in the model's order.

        Arrays are positional, in the order of the inputs, or by name, as keywords or in a mapping.
        Lists and numbers become arrays of the input's type; an array of another type is a
        TypeError. Text is `str`, in arrays of objects. The first range violation is a
        `ZdnnWarning`.
        """
        result = self.infer(*arrays, **named)
        for violation in result.violations[:1]:
            text = f"{violation.function} (node {violation.node})"
            warnings.warn(ZdnnWarning(violation.zdnn_status, text), stacklevel=2)
        outputs = tuple(result.outputs.values())
        return outputs[0] if len(outputs) == 1 else outputs

    def infer(self, *arrays: Feed, **named: npt.ArrayLike) -> Inference:
        """Run once and return outputs with diagnostics, without warnings."""
        inputs = self.named_arrays(self._by_name(arrays, named))
        answer = calls.ask(self.handle, INFER_NETWORK, pb.InferNetworkRequest(inputs=inputs))
        return Inference(
            {output.name: array_of(output) for output in answer.outputs},
            tuple(answer.violations),
            dict(answer.nans),
            dict(answer.calls),
        )

    def _by_name(
        self, arrays: Sequence[Feed], named: Mapping[str, npt.ArrayLike]
    ) -> dict[str, npt.ArrayLike]:
        """Return a call's arrays by the inputs' names; TypeError for two arrays of one name."""
        names = [port.name for port in self.inputs]
        positional = [array for array in arrays if not isinstance(array, Mapping)]
        mappings = [array for array in arrays if isinstance(array, Mapping)]
        feeds: dict[str, npt.ArrayLike] = dict(zip(names, positional, strict=False))
        is_over = len(positional) > len(names)
        for mapping in (*mappings, named):
            is_over |= not feeds.keys().isdisjoint(mapping)
            feeds.update(mapping)
        if is_over:
            keys = [key for mapping in (*mappings, named) for key in mapping]
            raise TypeError(f"inputs: {len(positional)} arrays and {keys}, expected {names}")
        return feeds

    def named_arrays(self, feeds: Mapping[str, npt.ArrayLike]) -> list[pb.NamedArray]:
        """Return inputs as messages; TypeError for an array whose type is not the input's."""
        types = {port.name: port.dtype for port in self.inputs}
        return [_named(name, array, types.get(name)) for name, array in feeds.items()]

    def report(self) -> pb.NetworkReport:
        """Return the network's report, with the placement of every node."""
        report = calls.get_info(self.handle)
        if report is None:
            raise NetworkError(calls.get_error(self.handle))
        return report.message

    def export_program(
        self, shapes: Mapping[str, Sequence[int]] | None = None, contents: bool = True
    ) -> bytes:
        """Return the compiled network as a serialised nnpa.network.v1.Program.

        `shapes` are the shapes of inputs with free dims, by default as the network was loaded.
        Without `contents` constants have no elements: the program is small and cannot run.
        """
        request = pb.ExportProgramRequest(
            shapes=calls.input_shapes(shapes), without_contents=not contents
        )
        transport = self.handle.session.transport
        parts = transport.receive_stream(EXPORT_PROGRAM, calls.addressed(self.handle, request))
        return b"".join(part.chunk for part in parts)

    def measure_accuracy(
        self,
        samples: Sequence[pb.Sample] = (),
        *,
        machines: Sequence[str] = (),
        made_up: int = 0,
        seed: int = 0,
        html: bool = False,
    ) -> pb.MeasureAccuracyResponse:
        """Compare the network with its FP32 model on the same data, on both Telums or `machines`.

        Without samples the server generates `made_up` random ones from `seed`.
        """
        request = pb.MeasureAccuracyRequest(
            samples=samples, machines=machines, made_up=made_up, seed=seed, html=html
        )
        return calls.ask(self.handle, MEASURE_ACCURACY, request)

    def probe(self, sizes: Sequence[int] = (), machines: Sequence[str] = ()) -> list[ProbeRun]:
        """Run the model at edge sizes over degenerate inputs; return one entry per run."""
        request = pb.ProbeNetworkRequest(sizes=sizes, machines=machines)
        rows: list[ProbeRun] = json.loads(calls.ask(self.handle, PROBE_NETWORK, request).json)
        return rows

    def close(self) -> None:
        """Destroy the network. May be repeated."""
        calls.destroy(self.handle)

    def __enter__(self) -> "Network":
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        ins, outs = (", ".join(f"{p.name} {p.dtype}{list(p.shape)}" for p in ports)
                     for ports in (self.inputs, self.outputs))  # fmt: skip
        return f"<Network {self.c_name} on {self.machine}: {ins} -> {outs}>"


def load(
    session: OpenSession,
    model: Model | None = None,
    c_name: str | None = None,
    options: Options = DEFAULT,
    **source: Unpack[Source],
) -> Network:
    """Create and initialise a network; arguments as in `create`.

    `c_name` defaults to a name that is new in the session. Raises `NetworkError` for a refusal of
    the client API, `TransportError` for a model that cannot be hosted.
    """
    name = c_name or f"network_{session.new_id()}"
    answer = calls.create_message(session, model, name, options, **source)
    if answer.HasField("error"):
        raise NetworkError(error_from_wire(answer.error))
    handle = Handle(session, answer.network.name)
    try:
        report = calls.get_info(handle)
        size = 0 if report is None else report.activations.channels
        if not calls.init(handle, NetworkParams(default_weights(), activations(size))):
            raise NetworkError(calls.get_error(handle))
    except BaseException:
        calls.destroy(handle)
        raise
    return Network(handle, answer.network)


def array_of(message: pb.NamedArray) -> Array:
    """Return a message's array; an array of texts has `str` objects."""
    if message.dtype == TEXT.name:
        return split_texts(message.data).reshape(list(message.shape))
    if message.dtype == "bfloat16":
        import ml_dtypes

        dtype = np.dtype(ml_dtypes.bfloat16)
    else:
        dtype = np.dtype(message.dtype)
    array: Array = np.frombuffer(message.data, dtype).reshape(list(message.shape)).copy()
    return array


def _port(message: program_pb2.Port) -> Port:
    return Port(message.name, message.dtype, tuple(message.shape))


def _named(name: str, value: npt.ArrayLike, dtype: str | None) -> pb.NamedArray:
    if isinstance(value, np.ndarray | np.generic):
        array = np.asarray(value)
        if array.dtype.kind in "UT":
            array = array.astype(TEXT)
        if dtype is not None and array.dtype.name != dtype:
            raise TypeError(f"input {name}: {array.dtype.name} array, expected {dtype}")
    else:
        array = np.asarray(value, None if dtype in (None, "bfloat16") else dtype)
    data = join_texts(array) if array.dtype == TEXT else raw(array)
    return pb.NamedArray(name=name, dtype=array.dtype.name, shape=array.shape, data=data)
