# SPDX-License-Identifier: Apache-2.0
"""Calls of MLI functions as bytes for the C program that makes them, and their answers.

A call is a name of the emulator and the arguments in Python. Its answer in Python is encoded in the
form of the program's output, so that both are compared byte by byte.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from mli_emulator import (
    Asserted,
    DebugLevel,
    FxParams,
    MliStatus,
    Options,
    Outcome,
    Refusal,
    RnnCellCfg,
    SaParams,
    SubTensorCfg,
    Tensor,
    find,
)
from mli_emulator.tensor import FX_TYPES, SA_TYPES, Bytes

_VARIANTS = ("fx8", "fx16", "fx8w16d")
FUNCTIONS = (
    *(f"krn_{kernel}_{v}" for kernel in ("fully_connected", "basic_rnn_cell") for v in _VARIANTS),
    *(f"krn_lstm_cell_{v}" for v in _VARIANTS),
    *(f"krn_{name}" for name in ("tanh_fx8", "tanh_fx16", "sigm_fx8", "sigm_fx16")),
    *("hlp_convert_tensor", "hlp_convert_tensor_safx", "hlp_subtensor", "hlp_create_subtensor"),
    *("hlp_tensor_element_size", "hlp_count_elem_num"),
    *("hlp_tensor_scale", "hlp_tensor_scale_shift", "hlp_tensor_zero_offset"),
)
"""The functions, in the order of `programs/calls.c`."""
SLOTS = ("in", "prev_out", "weights", "bias", "cell", "out", "ir")
_SLOT_OF = {"in_": "in", "src": "in", "dst": "out"}
_ABSENT, _PRESENT, _ABORTED = -1, -2, -(1 << 31)
_TEXT_BYTES = 96


@dataclass(frozen=True, slots=True)
class Call:
    """A function of the emulator by its documented name, and its arguments."""

    function: str
    arguments: Mapping[str, object]

    @property
    def slots(self) -> dict[str, Tensor]:
        """The tensors that are not NULL, by the name of their slot in the program."""
        tensors = {
            _SLOT_OF.get(name, name): argument
            for name, argument in self.arguments.items()
            if isinstance(argument, Tensor)
        }
        cfg = self.arguments.get("cfg")
        if isinstance(cfg, RnnCellCfg) and cfg.ir_tsr is not None:
            tensors["ir"] = cfg.ir_tsr
        return {name: tensors[name] for name in SLOTS if name in tensors}


@dataclass(frozen=True, slots=True)
class _Memory:
    """Bytes that tensors share: the address of the first byte, and all bytes."""

    start: int
    content: Bytes

    def holds(self, address: int) -> bool:
        """Tell whether an address lies in the memory or right behind it."""
        return self.start <= address <= self.start + len(self.content)


def _arrays(call: Call) -> list[Bytes]:
    return [tensor.data for tensor in call.slots.values() if tensor.data is not None]


def _memories(arrays: list[Bytes]) -> list[_Memory]:
    """Merge arrays that overlap or touch."""
    spans = sorted({(a.ctypes.data, a.ctypes.data + a.nbytes) for a in arrays})
    merged: list[list[int]] = []
    for start, end in spans:
        if merged and start <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([start, end])
    memories = [_Memory(start, np.zeros(end - start, np.uint8)) for start, end in merged]
    for array in arrays:
        address = array.ctypes.data
        memory = next(m for m in memories if m.start <= address < m.start + max(1, len(m.content)))
        memory.content[address - memory.start : address - memory.start + array.nbytes] = array
    return memories


def _words(values: list[int]) -> bytes:
    return np.array([value & 0xFFFFFFFF for value in values], np.uint32).tobytes()


def _place(tensor: Tensor, memories: list[_Memory]) -> list[int]:
    if tensor.data is None:
        return [-1, 0]
    address = tensor.data.ctypes.data
    number = next(i for i, memory in enumerate(memories) if memory.holds(address))
    return [number, address - memories[number].start]


def _four(values: tuple[int, ...]) -> list[int]:
    return list((values + (0,) * 4)[:4])


def _sa_words(params: SaParams) -> list[int]:
    columns = zip(params.zero_point, params.scale, params.scale_frac_bits, strict=True)
    return [value for column in columns for value in column]


def _given_words(tensor: Tensor, memories: list[_Memory]) -> list[int]:
    words = [_PRESENT, *_place(tensor, memories), tensor.capacity, tensor.rank]
    words += [*_four(tensor.shape), *_four(tensor.mem_stride), int(tensor.el_type)]
    params = tensor.el_params
    if isinstance(params, FxParams):
        return [*words, 1, params.frac_bits]
    if isinstance(params, SaParams):
        return [*words, 2, params.dim, len(params.scale), *_sa_words(params)]
    return [*words, 0]


def _left_words(tensor: Tensor, memories: list[_Memory]) -> list[int]:
    ranked = slice(0, tensor.rank)
    words = [*_place(tensor, memories), tensor.capacity, tensor.rank]
    words += [*_four(tensor.shape[ranked]), *_four(tensor.mem_stride[ranked]), int(tensor.el_type)]
    params = tensor.el_params
    if tensor.el_type in FX_TYPES:
        return [*words, params.frac_bits if isinstance(params, FxParams) else 0]
    if tensor.el_type in SA_TYPES and isinstance(params, SaParams):
        return [*words, params.dim, len(params.scale), 1, *_sa_words(params)]
    return words


def _argument_words(call: Call) -> list[int]:
    cfg = call.arguments.get("cfg")
    number = call.arguments.get("start_dim", call.arguments.get("idx", 0))
    assert isinstance(number, int)
    mode, act = (cfg.mode, cfg.act) if isinstance(cfg, RnnCellCfg) else (0, 0)
    part = cfg if isinstance(cfg, SubTensorCfg) else SubTensorCfg((), (), 0)
    slice_words = [*_four(part.offset), *_four(part.size), part.sub_tensor_rank]
    return [int(cfg is not None), mode, act, number, *slice_words]


def encode(call: Call) -> bytes:
    """Encode a call as the program reads it."""
    memories = _memories(_arrays(call))
    function = find(call.function)
    parts = [_words([FUNCTIONS.index(function.name), len(memories)])]
    for memory in memories:
        parts += [_words([len(memory.content)]), memory.content.tobytes()]
    slots = call.slots
    names = list(slots)
    for name in SLOTS:
        tensor = slots.get(name)
        same = next((n for n in names if slots[n] is tensor and n != name), name)
        if tensor is None:
            parts.append(_words([_ABSENT]))
        elif SLOTS.index(same) < SLOTS.index(name):
            parts.append(_words([SLOTS.index(same)]))
        else:
            parts.append(_words(_given_words(tensor, memories)))
    return b"".join([*parts, _words(_argument_words(call))])


@dataclass(frozen=True, slots=True)
class Answer:
    """A call's answer in the form of the program's output, and the emulator's return value."""

    encoded: bytes
    outcome: Outcome | int | None


def _refused(refusal: Refusal) -> str:
    """Return the text that C prints of a refusal up to the value.

    Python knows the memory behind a pointer; C knows only the tensor's capacity.
    """
    short = refusal.status is MliStatus.MLI_STATUS_NOT_ENGH_MEM
    named = refusal.field.replace(".data", ".capacity") if short else refusal.field
    return f"{refusal.status.name} ({refusal.constraint}): {named}"


def _run(call: Call, options: Options) -> tuple[int, str, Outcome | int | None]:
    """Return the C function's number, its text up to the value, and the outcome."""
    try:
        outcome = find(call.function).function(**call.arguments, options=options)
    except Asserted as stop:
        return _ABORTED, _refused(stop.refusal), None
    except IndexError:  # C has a return value only
        constraint = f"{call.function.removeprefix('hlp_')}_c1"
        printed = f"MLI_STATUS_ARGUMENT_ERROR ({constraint}): idx"
        loud = options.debug >= DebugLevel.ASSERT
        return (_ABORTED, printed, None) if loud else (0, "", None)
    if not isinstance(outcome, Outcome):
        return outcome, "", outcome
    return int(outcome.status), "".join(outcome.messages).partition(" is ")[0], outcome


def answer(call: Call, options: Options) -> Answer:
    """Make a call in Python, and encode its answer as the program writes it."""
    arrays = _arrays(call)
    before = _memories(arrays)
    number, printed, outcome = _run(call, options)
    after = _memories(arrays)
    assert [m.start for m in before] == [m.start for m in after]
    parts = [_words([number]), printed.encode().ljust(_TEXT_BYTES, b"\0")]
    tensors = {id(tensor): tensor for tensor in call.slots.values()}
    parts += [_words(_left_words(tensor, after)) for tensor in tensors.values()]
    return Answer(b"".join([*parts, *(memory.content.tobytes() for memory in after)]), outcome)


def split(written: bytes) -> list[bytes]:
    """Split the program's output into answers."""
    answers: list[bytes] = []
    start = 0
    while start < len(written):
        end = start + 4 + int(np.frombuffer(written[start : start + 4], np.uint32)[0])
        answers.append(written[start + 4 : end])
        start = end
    return answers


def promised(answered: bytes) -> bytes:
    """Cut an answer to its promised part: of an abort, the printed text without memory."""
    head = _words([_ABORTED])
    return answered[: len(head) + _TEXT_BYTES] if answered.startswith(head) else answered


def returned(answered: bytes) -> int:
    """Return the number that the function of an answer returned."""
    return int(np.frombuffer(answered[:4], np.int32)[0])


def text_of(answered: bytes) -> str:
    """Return the head of an answer as text: the returned value, and the printed text."""
    return f"{returned(answered)} {answered[4 : 4 + _TEXT_BYTES].rstrip(bytes(1)).decode()!r}"
