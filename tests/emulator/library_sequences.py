# SPDX-License-Identifier: Apache-2.0
"""zDNN functions as the instructions that the library issues, without the emulator's pipeline.

Parameter blocks are laid out here by hand, from nnpa.h of zDNN 1.2.0: what `machine_functions` says
of the same is under test. Software steps of quantized_matmul_op are the emulator's.
"""

import struct
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from nnpa_emulator.dlfloat import scalar_to_dlfloat
from nnpa_emulator.execution import Completion, execute
from nnpa_emulator.instruction import Alignment
from nnpa_emulator.machine import Guest
from nnpa_emulator.parameter_block import Role
from nnpa_emulator.status import ProgramCheck, Refusal, Status
from nnpa_emulator.ztensor import TensorDesc, Ztensor

Memory: TypeAlias = npt.NDArray[np.uint8]
Arguments: TypeAlias = Mapping[str, Any]
HW_ERROR = 0x000C0000
_PAGE, _WORD = 4096, 0xFFFFFFFF
_INT8, _WORDS = 8, (6, 10)
_PLACES = {1: 192, 2: 224, 3: 256, 17: 64, 18: 96}


class Operand(NamedTuple):
    """A tensor of the machine: its descriptor, and cells in the host's order."""

    desc: TensorDesc
    memory: Memory | None


@dataclass
class Issuer:
    """Issues instructions for a guest, and counts them by function code."""

    guest: Guest
    alignment: Alignment
    counts: Counter[int]

    def issue(
        self,
        code: int,
        version: int,
        inputs: Sequence[Operand],
        outputs: Sequence[Operand],
        words: Mapping[int, int] | None = None,
        save_area: bool = False,
    ) -> int:
        """Issue an instruction; return the status that the library derives from its response."""
        if not self.guest.cached.has_parmblk_format(version):
            return Status.ZDNN_UNAVAILABLE_FUNCTION
        block = bytearray(_PAGE)
        struct.pack_into(">H", block, 0, version)
        storage = dict[Role, Memory]()
        roles = [*zip((1, 2, 3), inputs, strict=False), *zip((17, 18), outputs, strict=False)]
        for number, (role, (desc, memory)) in enumerate(roles):
            address = 0x10_0000_0000 * (number + 1) + (8 if self.alignment.buffer_misaligned else 0)
            struct.pack_into(
                ">BB6x4IQ", block, _PLACES[role],
                desc.format & 0xFF, desc.type & 0xFF, *(n & _WORD for n in desc.dims), address,
            )  # fmt: skip
            if memory is not None:
                storage[Role(role)] = _swapped(memory, desc.type)
        for word, value in (words or {}).items():
            struct.pack_into(">I", block, 380 + 4 * word, value & _WORD)
        if save_area:
            misaligned = 8 if self.alignment.save_area_misaligned else 0
            struct.pack_into(">Q", block, 56, 0x9000 + misaligned)
            storage[Role.SAVE_AREA] = np.zeros(8192, np.uint8)
        self.counts[code] += 1
        done: Completion = execute(self.guest, code, 0x8000, bytes(block), storage)
        if done.condition_code:
            return HW_ERROR + done.response_code
        for role, (desc, memory) in roles:
            if role > 3 and memory is not None:
                memory[:] = _swapped(storage[Role(role)], desc.type)
        return (
            Status.ZDNN_ELEMENT_RANGE_VIOLATION if done.exception_flags & 0x80 else Status.ZDNN_OK
        )


def _swapped(memory: Memory, kind: int) -> Memory:
    if kind & 0xFF == _INT8:
        return memory.copy()
    width = 4 if kind & 0xFF in _WORDS else 2
    whole = memory.nbytes // width * width
    swapped = memory.copy()
    swapped[:whole] = memory[:whole].view(f"u{width}").byteswap().view(np.uint8)
    return swapped


_Words: TypeAlias = Callable[[Issuer, Arguments], Mapping[int, int]]


def _no_words(_issuer: Issuer, _arguments: Arguments) -> Mapping[int, int]:
    return {}


class _Simple(NamedTuple):
    """A function that is one instruction: code, format, operands, words of its arguments."""

    code: int
    version: int
    inputs: str
    words: _Words = _no_words
    outputs: str = "output"
    save_area: bool = False


def dlfloat(issuer: Issuer, value: float | None) -> int:
    """Convert a scalar as VCRNF does; 0 is not converted."""
    if value is None or value == 0:
        return 0
    if not issuer.guest.machine.vector_nnp:
        raise ProgramCheck("operation", Refusal(0, "machine", issuer.guest.machine.name, "z16"))
    return scalar_to_dlfloat(value)


def _codes(*names: str) -> _Words:
    """Put arguments into the words 1, 2, 3 as codes of DLFLOAT16."""

    def words(issuer: Issuer, a: Arguments) -> Mapping[int, int]:
        return {word: dlfloat(issuer, a.get(name)) for word, name in enumerate(names, 1)}

    return words


def _numbers(**widths: int) -> _Words:
    """Put arguments into the words 1, 2, 3, each cut to its width in bits."""

    def words(_issuer: Issuer, a: Arguments) -> Mapping[int, int]:
        pairs = enumerate(widths.items(), 1)
        return {word: int(a[name]) & (1 << width) - 1 for word, (name, width) in pairs}

    return words


def _pooling(_issuer: Issuer, a: Arguments) -> Mapping[int, int]:
    return {
        1: a["padding_type"] & 7, 2: a["stride_width"], 3: a["stride_height"],
        4: a["kernel_width"], 5: a["kernel_height"],
    }  # fmt: skip


def _whole(_issuer: Issuer, a: Arguments) -> Mapping[int, int]:
    desc = a["input"].transformed_desc
    return {4: desc.dim2, 5: desc.dim3}


def _convolution(issuer: Issuer, a: Arguments) -> Mapping[int, int]:
    return {
        1: (a["act_func"] & 15) << 4 | a["padding_type"] & 7,
        2: a["stride_width"], 3: a["stride_height"],
        4: dlfloat(issuer, a.get("clipping_value")),
    }  # fmt: skip


_ONE, _TWO, _THREE = "input", "input_a input_b", "input_a input_b input_c"
_MASKED = {"act_func": 4, "softmax_mask": 32}
_SIMPLE = {
    "add": _Simple(16, 0, _TWO), "sub": _Simple(17, 0, _TWO), "mul": _Simple(18, 0, _TWO),
    "div": _Simple(19, 0, _TWO), "min": _Simple(20, 0, _TWO), "max": _Simple(21, 0, _TWO),
    "log": _Simple(32, 0, _ONE), "exp": _Simple(33, 0, _ONE), "sqrt": _Simple(34, 1, _ONE),
    "invsqrt": _Simple(35, 1, _ONE, _codes("epsilon")),
    "relu": _Simple(49, 0, _ONE, _codes("clipping_value")),
    "leaky_relu": _Simple(49, 1, _ONE, _codes("clipping_value", "adjustment_factor")),
    "tanh": _Simple(50, 0, _ONE), "sigmoid": _Simple(51, 0, _ONE),
    "softmax": _Simple(52, 0, _ONE, _numbers(act_func=4), save_area=True),
    "softmax_mask": _Simple(52, 1, _ONE, _numbers(**_MASKED), save_area=True),
    "gelu": _Simple(53, 1, _ONE),
    "batchnorm": _Simple(64, 0, _THREE),
    "moments": _Simple(
        65, 1, _ONE, _numbers(bessel_correction_type=32), outputs="output_a output_b"
    ),
    "layernorm": _Simple(66, 1, _THREE, _codes("beta_value", "gamma_value", "epsilon_value")),
    "norm": _Simple(67, 1, _TWO),
    "maxpool2d": _Simple(80, 0, _ONE, _pooling), "avgpool2d": _Simple(81, 0, _ONE, _pooling),
    "meanreduce2d": _Simple(81, 0, _ONE, _whole),
    "conv2d": _Simple(112, 0, "input kernel bias", _convolution),
    "matmul_op": _Simple(113, 0, _THREE, _numbers(op_type=8)),
    "reduce": _Simple(241, 1, _ONE, _numbers(op_type=8), save_area=True),
}  # fmt: skip


def operand(tensor: Ztensor) -> Operand:
    """Return the descriptor and the cells of a ztensor, as the machine gets them."""
    return Operand(tensor.transformed_desc, tensor.buffer)


def _product_code(a: Ztensor, b: Ztensor) -> int:
    stacks = a.transformed_desc.dim4, b.transformed_desc.dim4
    if stacks[0] == 1 and stacks[1] != 1:
        return 115
    return 114 if stacks[1] == 1 and stacks[0] != 1 else 113


def _products(issuer: Issuer, name: str, a: Arguments) -> int:
    code = _product_code(a["input_a"], a["input_b"])
    op_type, turned = a["op_type"] & 255, 0
    if name == "matmul_transpose_op":
        version, turned = 1, int(bool(a["transpose_b"])) << 1 | int(bool(a["transpose_a"]))
    elif issuer.guest.library_version < 0x010100:
        code, version = 114, 0
    else:
        version = {113: 0, 114: int(a["op_type"] != 0), 115: 1}[code]
    return issuer.issue(
        code, version, [operand(a[key]) for key in _THREE.split()], [operand(a["output"])],
        {1: op_type, 2: turned},
    )  # fmt: skip


def issue_one(issuer: Issuer, name: str, a: Arguments) -> int | None:
    """Issue the instruction of a function that has one; None for all other functions."""
    if name in ("matmul_bcast_op", "matmul_transpose_op"):
        status = _products(issuer, name, a)
    elif name in _SIMPLE:
        instruction = _SIMPLE[name]
        status = issuer.issue(
            instruction.code, instruction.version,
            [operand(a[key]) for key in instruction.inputs.split()],
            [operand(a[key]) for key in instruction.outputs.split()],
            instruction.words(issuer, a), instruction.save_area,
        )  # fmt: skip
    else:
        return None
    if status in (Status.ZDNN_OK, Status.ZDNN_ELEMENT_RANGE_VIOLATION):
        a["output_a" if name == "moments" else "output"].is_transformed = True
    return status
