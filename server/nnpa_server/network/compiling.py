# SPDX-License-Identifier: Apache-2.0
"""What compiles models in a worker: a program of `nnpa_server.sandbox` that knows ONNX.

A job is a line of JSON, which the server wrote, and the model's file as the first array. An answer
begins with a byte that says whether the model was refused.
"""

import json
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from hashlib import sha256
from importlib import import_module
from typing import Any, Literal, TypedDict

import numpy as np
from nnpa_emulator import Guest, Machine
from nnpa_emulator.kernels import use_reference
from nnpa_emulator.machine import Memory, QueryResult, page_memory
from nnpa_network.importing.onnx_import import ImportOptions, OnnxModel, import_onnx
from nnpa_network.importing.onnx_plan import weights_of, with_weights
from nnpa_network.importing.plan import Weight
from nnpa_network.placements import Placement
from nnpa_network.program import Array, ModelRefused
from nnpa_network.running.host import forget_kernels, newest_opset

from nnpa_server.network.program_codec import Facts, encode, encode_facts
from nnpa_server.sandbox.frames import Message
from nnpa_server.sandbox.worker import Handler
from nnpa_server.tuning.process import give_back, keep_locales

DONE, REFUSED = b"\x00", b"\x01"
_MAX_MODELS = 4
_NOWHERE = -1  # in a file: contents travel
_NEAR_BYTES = 4096  # between weights in a file: names and dims


class GuestFacts(TypedDict):
    """A guest as JSON has it."""

    name: str
    title: str
    vector_nnp: bool
    qaf: dict[str, Any]
    cached: dict[str, Any]
    library: str
    numerics: Literal["exact", "jitter"]
    jitter_seed: int
    accumulate: Literal["fp32", "fp64"]


class Options(TypedDict):
    """What of `ImportOptions` a server offers."""

    strict: bool
    saturate: bool
    offload_integer: bool
    placement: Placement
    max_bytes: int


class Job(TypedDict):
    """What a worker is asked: `facts`, `program` of these shapes, `weights`, `with_weights`."""

    verb: str
    options: Options
    guest: GuestFacts
    shapes: dict[str, list[int]]


def encode_job(
    verb: str, options: ImportOptions, guest: Guest, shapes: Mapping[str, tuple[int, ...]]
) -> bytes:
    """Return the line of a job."""
    sizes = {name: list(shape) for name, shape in shapes.items()}
    job = Job(verb=verb, options=option_facts(options), guest=guest_facts(guest), shapes=sizes)
    return json.dumps(job).encode()


def option_facts(options: ImportOptions) -> Options:
    """Return options as JSON has them."""
    return Options(
        strict=options.strict,
        saturate=options.saturate,
        offload_integer=options.offload_integer,
        placement=options.placement,
        max_bytes=options.max_bytes,
    )


def guest_facts(guest: Guest) -> GuestFacts:
    """Return a guest as JSON has it."""
    return GuestFacts(
        name=guest.machine.name,
        title=guest.machine.title,
        vector_nnp=guest.machine.vector_nnp,
        qaf=asdict(guest.machine.qaf),
        cached=asdict(guest.cached),
        library=guest.library,
        numerics=guest.numerics,
        jitter_seed=guest.jitter_seed,
        accumulate=guest.accumulate,
    )


def refusal_facts(refused: ModelRefused) -> bytes:
    """Return a refusal as JSON."""
    return json.dumps({"reason": refused.reason, "node": refused.node}).encode()


def make_guest(facts: GuestFacts, allocate: Callable[[int], Memory | None] = page_memory) -> Guest:
    """Return the guest of its facts; `allocate` provides storage for sticks."""
    qaf = _query_result(facts["qaf"])
    guest = Guest(
        Machine(facts["name"], facts["title"], (), facts["vector_nnp"], qaf),
        facts["library"],
        numerics=facts["numerics"],
        jitter_seed=facts["jitter_seed"],
        accumulate=facts["accumulate"],
        allocate=allocate,
    )
    guest.cached = _query_result(facts["cached"])
    return guest


def _query_result(facts: Mapping[str, Any]) -> QueryResult:
    fields: dict[str, Any] = {**facts, "max_dims": tuple(facts["max_dims"])}
    return QueryResult(**fields)


class Compiler:
    """Compiles models, and keeps the last `most`, without their files, for other shapes."""

    def __init__(self, most: int = _MAX_MODELS) -> None:
        self._most = most
        self._models: OrderedDict[bytes, OnnxModel] = OrderedDict()

    def __call__(self, message: Message) -> Message:
        """Return what was asked for, or why the model is refused."""
        job: Job = json.loads(message.text)
        try:
            return self._answer(job, message)
        except UnicodeDecodeError:  # ONNX reads such names, messages take none
            refused = ModelRefused("the model is not valid: a name is no UTF-8")
        except ModelRefused as error:
            refused = error
        return Message(REFUSED + refusal_facts(refused))

    def _answer(self, job: Job, message: Message) -> Message:
        file, *parts = message.arrays
        match job["verb"]:
            case "facts":
                model = self._model(job, file)
                facts = Facts(model.name, model.inputs, model.optional, model.outputs)
                return Message(DONE + encode_facts(facts))
            case "program":
                shapes = {name: tuple(shape) for name, shape in job["shapes"].items()}
                text, arrays = encode(self._model(job, file).specialise(shapes))
                forget_kernels()  # they showed that the host takes its nodes; none runs here
                give_back()
                return Message(DONE + text, arrays)
            case "weights":
                return _located(weights_of(self._model(job, file)), file.tobytes())
            case verb:
                assert verb == "with_weights"
                changed = with_weights(file.tobytes(), [part.tobytes() for part in parts])
                return Message(DONE, (np.frombuffer(changed, np.uint8),))

    def _model(self, job: Job, file: Array) -> OnnxModel:
        """Return the model of a file, checked."""
        choice = json.dumps([job["options"], job["guest"]]).encode()
        key = sha256(choice + sha256(file.data).digest()).digest()
        if key not in self._models:
            guest, options = make_guest(job["guest"]), ImportOptions(**job["options"])
            self._models[key] = import_onnx(file.tobytes(), guest, options)
            while len(self._models) > self._most:
                self._models.popitem(last=False)
        give_back()  # a file takes more while it is read than the model does
        return self._models[key]


def _located(weights: Iterable[Weight], file: bytes) -> Message:
    """Return the table of weights, each with its place in the file, and contents of the rest.

    Exporters write weights as they are, one behind the other.
    """
    table: list[tuple[str, str, tuple[int, ...], int]] = []
    contents: list[Array] = []
    end, slack = 0, len(file)
    for weight in weights:
        place = file.find(weight.data, end, end + weight.nbytes + slack)
        if place == _NOWHERE:
            contents.append(np.frombuffer(weight.data, np.uint8))
            slack = min(slack, _NEAR_BYTES) + 2 * weight.nbytes
        else:
            end, slack = place + weight.nbytes, _NEAR_BYTES
        table.append((weight.name, weight.dtype, weight.shape, place))
    return Message(DONE + json.dumps(table).encode(), tuple(contents))


def load_late_files() -> None:
    """Import and load what jobs would, which cannot open files."""
    newest_opset()
    import_module("numpy.ma")  # by numpy.unique
    keep_locales()


def start() -> Handler:
    """Return what answers jobs."""
    use_reference()  # compiled kernels lie in files; their bits are the same
    load_late_files()
    return Compiler()
