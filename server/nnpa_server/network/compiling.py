# SPDX-License-Identifier: Apache-2.0
"""The program of workers that compile ONNX models. Its jobs:

    facts         return a model's name, inputs and outputs
    program       compile the model for shapes of its inputs
    weights       return its initializers
    with_weights  return its file with other initializers

The first array of a job is the model's file. An answer begins with a byte that says whether the
model was refused. The server reads the rest as untrusted bytes.
"""

import json
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import fields, is_dataclass
from importlib import import_module
from typing import Any

import numpy as np
from nnpa_emulator import Guest
from nnpa_emulator.kernels import use_reference
from nnpa_emulator.kernels.jit import compile_no_more
from nnpa_emulator.machine import LogLevel, Machine, QueryResult
from nnpa_network.importing.onnx_import import ImportOptions, OnnxModel, import_onnx
from nnpa_network.importing.onnx_plan import weights_of, with_weights
from nnpa_network.importing.plan import Weight
from nnpa_network.lowering.placement import Rule
from nnpa_network.program import Array, ModelRefused
from nnpa_network.running.host import domains, infers_shapes, newest_opset

from nnpa_server.network.program_codec import Facts, encode, encode_facts
from nnpa_server.sandbox.frames import Message
from nnpa_server.sandbox.worker import Handler
from nnpa_server.tuning import kernel_cache, warmup
from nnpa_server.tuning.process import give_back, keep_locales

DONE, REFUSED = b"\x00", b"\x01"
_MAX_MODELS = 4
_NOWHERE = -1  # in a file: contents travel
_NEAR_BYTES = 4096  # between weights in a file: names and dims
_TRANSFORMS = ("transform-FP32", "transform-FP16", "transform-BFLOAT")  # of constants
_OWN = frozenset(("allocate", "reserve", "sequence"))  # of a guest: its storage, its jittered calls


def encode_job(verb: str, **facts: object) -> bytes:
    """Return a job as JSON: its verb, and its facts by name."""
    return json.dumps([verb, facts], default=_plain).encode()


def _plain(fact: object) -> object:
    """Return the fields of a dataclass, or a set as a list; raise TypeError for anything else."""
    if isinstance(fact, frozenset):
        return sorted(fact)
    if not is_dataclass(fact):
        raise TypeError(f"a fact of type {type(fact).__name__} has no form in a job")
    values = ((field.name, getattr(fact, field.name)) for field in fields(fact))
    return {name: value for name, value in values if name not in _OWN}


def decode_job(text: bytes) -> tuple[str, dict[str, Any]]:
    """Return a job's verb, and its facts by name; guests and options are objects again."""
    verb, facts = json.loads(text)
    for name, read in _READERS.items():
        if name in facts:
            facts[name] = read(facts[name])
    return verb, facts


def _read_guest(facts: dict[str, Any]) -> Guest:
    """Return a guest whose storage is the worker's own."""
    machine, cached, level = (facts.pop(name) for name in ("machine", "cached", "log_level"))
    machine |= {"aliases": tuple(machine["aliases"]), "qaf": _read_query(machine["qaf"])}
    guest = Guest(Machine(**machine), log_level=level and LogLevel(level), **facts)
    guest.cached = _read_query(cached)
    return guest


def _read_query(facts: dict[str, Any]) -> QueryResult:
    facts["max_dims"] = tuple(facts["max_dims"])
    return QueryResult(**facts)


def _read_options(facts: dict[str, Any]) -> ImportOptions:
    facts["device_placement"] = tuple(Rule(**rule) for rule in facts["device_placement"])
    facts["shortcuts"] = frozenset(facts["shortcuts"])
    return ImportOptions(**facts)


_READERS: Mapping[str, Callable[[Any], object]] = {
    "guest": _read_guest,
    "options": _read_options,
    "shapes": lambda shapes: {name: tuple(shape) for name, shape in shapes.items()},
}


def refusal_facts(refused: ModelRefused) -> bytes:
    """Return a refusal as JSON."""
    return json.dumps({"reason": refused.reason, "node": refused.node}).encode()


class Compiler:
    """Answers jobs; keeps the last `most` models without their files, for further shapes."""

    def __init__(self, most: int = _MAX_MODELS) -> None:
        self._most = most
        self._models: OrderedDict[object, OnnxModel] = OrderedDict()

    def __call__(self, message: Message) -> Message:
        """Return the answer to a job, or the refusal of its model."""
        verb, facts = decode_job(message.text)
        file, *parts = message.arrays
        try:
            if verb == "with_weights":
                changed = with_weights(file.tobytes(), [part.tobytes() for part in parts])
                return Message(DONE, (np.frombuffer(changed, np.uint8),))
            return self._answer(verb, file, **facts)
        except UnicodeDecodeError:  # ONNX reads such names, messages take none
            refused = ModelRefused("the model is not valid: a name is no UTF-8")
        except ModelRefused as error:
            refused = error
        return Message(REFUSED + refusal_facts(refused))

    def _answer(
        self,
        verb: str,
        file: Array,
        guest: Guest,
        options: ImportOptions,
        digest: str,
        shapes: Mapping[str, tuple[int, ...]],
    ) -> Message:
        model = self._model(file, digest, guest, options)
        if verb == "facts":
            facts = Facts(model.name, model.inputs, model.optional, model.outputs)
            return Message(DONE + encode_facts(facts))
        if verb == "weights":
            return _located(weights_of(model), file.tobytes())
        text, arrays = encode(model.specialise(shapes))
        give_back()
        return Message(DONE + text, arrays)

    def _model(self, file: Array, digest: str, guest: Guest, options: ImportOptions) -> OnnxModel:
        """Return the checked model of a file of this digest."""
        key = digest, options, repr(guest)
        if key not in self._models:
            self._models[key] = import_onnx(file.tobytes(), guest, options)
            while len(self._models) > self._most:
                self._models.popitem(last=False)
            give_back()  # a file takes more while it is read than the model does
        return self._models[key]


def _located(weights: Iterable[Weight], file: bytes) -> Message:
    """Return the table of weights, each with its offset in the file, or -1 and its contents.

    Exporters write most weights one behind the other, in the form that the runtime takes.
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


def load_kernels(shortcuts: str, functions: Collection[str] = ()) -> None:
    """Load the cached kernels of functions, or of all: a confined worker cannot open files.

    `shortcuts` are names separated by commas; without "compiled-kernels" references compute.
    """
    if "compiled-kernels" not in shortcuts.split(","):
        use_reference()
        return
    kernel_cache.leave_out_scipy()
    kernel_cache.key_by_sources()
    kernel_cache.only_read()
    warmup.load_kernels(functions)
    compile_no_more()


def load_late_files() -> None:
    """Import modules and load files that jobs need: a confined worker cannot open files.

    Tables of operators are made here, too: workers that are forked share them.
    """
    newest_opset()
    domains()
    infers_shapes("", "Neg")
    import_module("numpy.ma")  # by numpy.unique
    keep_locales()


def start(shortcuts: str) -> Handler:
    """Prepare the process, and return the handler of its jobs; see `load_kernels`."""
    load_kernels(shortcuts, _TRANSFORMS)
    load_late_files()
    return Compiler()
