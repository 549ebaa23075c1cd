# SPDX-License-Identifier: Apache-2.0
"""Hostile calls from a seed, made in a process of their own, since they may kill it.

`python -m tests.emulator.adversary FIRST COUNT` makes the calls numbered FIRST onwards. Most begin
as a valid call, of which a few facts are then changed. Every buffer lies between pages that nobody
may touch, so that a kernel that leaves it ends the process. The number of a call is printed before
it is made; at the end a line of JSON tells how many calls of each function there were, and how many
of them ended with ZDNN_OK or a warning.
"""

import ctypes
import faulthandler
import json
import mmap
import os
import random
import sys
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from nnpa_emulator import FUNCTIONS, MACHINES, Alignment, Guest, Ztensor, run
from nnpa_emulator.machine import LIBRARY_VERSIONS
from nnpa_emulator.pipeline import Function
from nnpa_emulator.status import Malformed, NotInLibrary, ProgramCheck
from nnpa_emulator.ztensor import (
    TYPE_BYTES,
    DataFormats,
    DataLayouts,
    DataTypes,
    TensorDesc,
    generate_quantized_transformed_desc,
    generate_transformed_desc,
    generate_transformed_desc_concatenated,
    getsize_ztensor,
)

Buffer = npt.NDArray[np.uint8]
Tensors = dict[str, Ztensor]
PAGE, GUARD = 4096, 1 << 24
LARGEST = 1 << 20
"""Bytes of the largest buffer that there is."""
SIZES = (1, 1, 1, 2, 3, 31, 32, 33, 64, 65, 129)
EDGES = (0, 1, 2, 63, 64, 65, 128, 1025, 32768, 32769, 1 << 21, 1 << 31, (1 << 32) - 1)
NUMBERS = (*range(14), 31, 0x100, 0x101, 0x102, 0x108, 0x10A, *range(251, 256), (1 << 32) - 1)
FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-9, 1e30, -1e30, 9e9, float("nan"), float("inf"))
PLAIN, BYTES = DataTypes.ZDNN_DLFLOAT16, DataTypes.ZDNN_BINARY_INT8
FEATURE, WEIGHTS = DataFormats.ZDNN_FORMAT_4DFEATURE, DataFormats.ZDNN_FORMAT_4DWEIGHTS
_USUAL = {
    "clip_min": (-128, 0), "clip_max": (127, 1), "direction": (0, 1, 2), "padding_type": (0, 1, 1),
    "stride_height": (0, 1, 2), "stride_width": (0, 1, 2, 3), "kernel_height": (1, 2, 3),
    "kernel_width": (1, 2, 3),
}  # fmt: skip
_libc = ctypes.CDLL(None, use_errno=True)


def guarded(size: int) -> Buffer | None:
    """Return zero bytes between protected pages, or None for more than `LARGEST`."""
    if size > LARGEST:
        return None
    room = -(-size // PAGE) * PAGE
    memory = mmap.mmap(-1, room + 2 * GUARD)
    whole = np.frombuffer(memory, np.uint8)
    start = whole.ctypes.data
    for first in (start, start + GUARD + room):
        if _libc.mprotect(ctypes.c_void_p(first), ctypes.c_size_t(GUARD), 0):
            raise OSError(ctypes.get_errno(), "mprotect")
    return whole[GUARD : GUARD + size]


class Adversary:
    """One call: everything that it draws follows from its number."""

    def __init__(self, number: int) -> None:
        self.random = random.Random(number)
        names = sorted(function.name for function in FUNCTIONS.values() if function.tensors)
        self.name = names[number % len(names)]
        if self.often(0.03):
            self.name = self.random.choice(sorted(FUNCTIONS))

    def often(self, share: float) -> bool:
        """Draw true in this share of calls."""
        return self.random.random() < share

    def size(self) -> int:
        """Draw one dimension."""
        return self.random.choice(SIZES)

    def guest(self) -> Guest:
        """Draw a program on a machine; most are on a Telum II, without precheck."""
        machine = "telum2" if self.often(0.8) else self.random.choice(sorted(MACHINES))
        library = "1.2.0" if self.often(0.9) else self.random.choice(sorted(LIBRARY_VERSIONS))
        guest = Guest(MACHINES[machine], library, precheck=self.often(0.2), allocate=guarded)
        guest.accumulate = "fp64" if self.often(0.2) else "fp32"
        guest.numerics = "jitter" if self.often(0.1) else "exact"
        return guest

    def tensor(self, *dims: int, fmt: int = FEATURE, kind: int = PLAIN) -> Ztensor:
        """Return a valid tensor."""
        hwck = fmt == DataFormats.ZDNN_FORMAT_4DKERNEL
        layout = DataLayouts.ZDNN_HWCK if hwck else DataLayouts.ZDNN_NHWC
        user = {BYTES: DataTypes.INT8, DataTypes.ZDNN_BINARY_INT32: DataTypes.INT32}
        pre = TensorDesc(layout, 0, user.get(DataTypes(kind), DataTypes.FP32), *dims)
        return self.filled(Ztensor(pre, TensorDesc(layout, fmt, kind, *dims), is_transformed=True))

    def filled(self, tensor: Ztensor) -> Ztensor:
        """Give a tensor the buffer that its descriptor asks for, or a small one, and contents."""
        expected = getsize_ztensor(tensor.transformed_desc)
        tensor.buffer = guarded(
            expected if expected <= LARGEST else PAGE * self.random.randint(0, 4)
        )
        tensor.buffer_size = expected if self.often(0.9) else self.random.choice(EDGES)
        seed = np.random.default_rng(self.random.getrandbits(32))
        if tensor.buffer is not None and tensor.buffer.size:
            low, high = (0x3800, 0x4400) if self.often(0.8) else (0, 0x10000)
            cells = tensor.buffer.view(np.uint16)
            cells[:] = seed.integers(low, high, cells.size, np.uint16)
        tensor.rec_scale, tensor.offset = self.random.choice((1.0, 0.5, 0.0)), 0.0
        if self.often(0.2):
            tensor.rec_scale, tensor.offset = self.random.choice(FLOATS), self.random.choice(FLOATS)
        return tensor

    def alike(self, names: tuple[str, ...]) -> Tensors:
        """Draw tensors of one shape."""
        dims = (self.size() % 4 + 1, 1 if self.often(0.7) else 2, self.size(), self.size())
        return {name: self.tensor(*dims) for name in names}

    def product(self) -> Tensors:
        """Draw operands of a matrix product, of bytes where the function is quantized."""
        s, m, n, p = self.random.choice((1, 1, 3)), self.size(), self.size(), self.size()
        stacks = self.random.choice(((s, s, s), (s, 1, 1), (1, s, s)))
        quantized = self.name.startswith("quantized")
        kind = BYTES if quantized and self.often(0.6) else PLAIN
        weights = (WEIGHTS, BYTES) if quantized else (FEATURE, PLAIN)
        result = {
            "input_a": self.tensor(stacks[0], 1, m, n, kind=kind),
            "input_b": self.tensor(stacks[1], 1, n, p, fmt=weights[0], kind=weights[1]),
            "input_c": self.tensor(stacks[2], 1, 1, p, kind=BYTES if quantized else PLAIN),
        }
        return result | ({"output": self.tensor(s, 1, m, p)} if quantized else {})

    def convolution(self) -> Tensors:
        """Draw input, kernel and bias."""
        h, w, c, k = (self.random.choice((1, 3, 5, 9, 64, 65)) for _ in range(4))
        fmt = DataFormats.ZDNN_FORMAT_4DKERNEL
        kernel = (self.random.choice((1, 2, 3, h)), self.random.choice((1, 2, 3, w)), c, k)
        return {
            "input": self.tensor(self.random.choice((1, 2)), h, w, c),
            "kernel": self.tensor(*kernel, fmt=fmt),
            "bias": self.tensor(1, 1, 1, k),
        }

    def normalisation(self) -> Tensors:
        """Draw a tensor with two of one element per channel, or per dim4 for layernorm."""
        ztensor = self.alike(("input_a",))["input_a"]
        d4, _, _, d1 = ztensor.transformed_desc.dims
        small = (d4, 1, 1, 1) if self.name == "layernorm" else (1, 1, 1, d1)
        return {"input_a": ztensor, "input_b": self.tensor(*small), "input_c": self.tensor(*small)}

    def layer(self, direction: int) -> Tensors:
        """Draw the inputs of a recurrent layer."""
        gates = 4 if self.name == "lstm" else 3
        ts, b, f, s = (self.random.choice((1, 2, 3, 33, 65)) for _ in range(4))
        d, width = 2 if direction == 2 else 1, gates * (-(-s // 64) * 64)
        result = {"input": self.tensor(ts, 1, b, f), "h0": self.tensor(d, 1, b, s)}
        if gates == 4:
            result["c0"] = self.tensor(d, 1, b, s)
        for name, rows in (("weights", f), ("biases", 1), ("hidden_weights", s)):
            result[name] = self.tensor(d, 1, rows, width)
        return result | {"hidden_biases": self.tensor(d, 1, 1, width)}

    def descriptors(self) -> tuple[TensorDesc, TensorDesc]:
        """Draw descriptors of user data and sticks that fit each other."""
        dims = [self.size() for _ in range(4)]
        layout = self.random.choice([kind for kind in DataLayouts if kind not in (5, 10, 12, 13)])
        kind = self.random.choice(
            (DataTypes.FP32, DataTypes.FP32, DataTypes.FP16, DataTypes.BFLOAT)
        )
        pre = TensorDesc(layout, 0, kind, *dims)
        if "quantized" in self.name:
            number, user = self.random.choice(((0, kind), (1, kind), (1, 251), (2, 251)))
            flat = replace(pre, layout=int(DataLayouts.ZDNN_NHWC), type=int(user))
            return flat, generate_quantized_transformed_desc(flat, number)
        if self.name == "transform_ztensor" and self.often(0.4):
            usage = self.random.choice((0, 0x10000, 0x100, 0x200))
            expected = DataLayouts.ZDNN_2DS if usage == 0x200 else DataLayouts.ZDNN_3DS
            pre = replace(pre, layout=int(expected), dim2=2 * dims[2])
            gates = self.random.choice((0, 1 << 24))
            return pre, generate_transformed_desc_concatenated(pre, usage | gates)
        return pre, generate_transformed_desc(pre)

    def single(self, names: tuple[str, ...]) -> Tensors:
        """Draw tensors for transforms and the like."""
        pre, desc = self.descriptors()
        result: Tensors = {}
        for name in names:
            state = name == "src" or not self.name.startswith(("transform_zt", "transform_q"))
            state = False if name == "dest" else state
            result[name] = self.filled(Ztensor(pre, desc, is_transformed=state))
        if "dest" in names and self.often(0.7):
            turned = replace(pre, dim2=pre.dim3, dim3=pre.dim2, dim4=pre.dim1, dim1=pre.dim4)
            pre = turned if self.often(0.5) else replace(pre, dim2=pre.dim3, dim3=pre.dim2)
            result["dest"] = self.filled(Ztensor(pre, generate_transformed_desc(pre)))
        return result

    def scalar(self, name: str, annotation: object) -> Any:
        """Draw an argument that is no tensor, by its name and type."""
        if "Sequence" in str(annotation):
            return [self.random.choice(NUMBERS) for _ in range(self.random.randint(0, 3))]
        if "float" in str(annotation):
            return self.random.choice(FLOATS) if self.often(0.3) else 0.5
        if "bool" in str(annotation):
            return self.often(0.3)
        if "TensorDesc" in str(annotation):
            return self.descriptors()[0]
        usual = _USUAL.get(name, (0, 0, 1, 1, 2, 3))
        return self.random.choice(usual if self.often(0.8) else (*EDGES, *NUMBERS))

    def data(self, tensor: Ztensor) -> list[bytes]:
        """Draw user arrays, most of the size that the call reads."""
        desc, pre = tensor.transformed_desc, tensor.pre_transformed_desc
        gates = {10: 4, 13: 4, 5: 3, 12: 3}.get(desc.layout, 0)
        dims = pre.layout_dims if gates else desc.dims
        count = 1
        for size in dims:
            count *= size
        count = count * TYPE_BYTES.get(pre.type, 2) + (0 if self.often(0.9) else 2)
        return [self.random.randbytes(count if count <= LARGEST else 8)] * (gates or 1)

    def spoil(self, tensors: Tensors) -> None:
        """Change a few facts of some tensors."""
        for _ in range(self.random.choice((0, 0, 1, 1, 2, 3))):
            name = self.random.choice(sorted(tensors))
            tensor, second = tensors[name], tensors[self.random.choice(sorted(tensors))]
            match self.random.randint(0, 9):
                case 0:
                    tensor.buffer = None
                case 1:
                    tensor.buffer = second.buffer
                case 2:
                    tensor.buffer = guarded(PAGE * self.random.randint(0, 9))
                case 3:
                    tensor.is_transformed = not tensor.is_transformed
                case 4:
                    tensor.pre_transformed_desc = self.changed(tensor.pre_transformed_desc)
                case 5:
                    tensors[name] = second
                case _:
                    tensor.transformed_desc = self.changed(tensor.transformed_desc)
                    if self.often(0.8):
                        self.filled(tensor)

    def changed(self, desc: TensorDesc) -> TensorDesc:
        """Return a descriptor with one field changed."""
        name = self.random.choice([field.name for field in fields(TensorDesc)])
        value = getattr(desc, name)
        if not name.startswith("dim"):
            masked = value | 0x100 if self.often(0.5) else self.random.choice(NUMBERS)
            return replace(desc, **{name: int(masked)})
        near = (
            value + 1,
            max(value - 1, 0),
            2 * value,
            value // 2,
            self.size(),
            -(-value // 64) * 128,
        )
        return replace(desc, **{name: self.random.choice(near if self.often(0.7) else EDGES)})

    def tensors(self, entry: Function, scalars: Mapping[str, Any]) -> Tensors:
        """Draw the tensors of a call, the outputs as the emulator would describe them."""
        makers: dict[str, Callable[[], Tensors]] = {
            "conv2d": self.convolution,
            "batchnorm": self.normalisation,
            "layernorm": self.normalisation,
        }
        inputs = tuple(operand for operand in entry.tensors if operand not in entry.outputs)
        if self.name in ("lstm", "gru"):
            result = self.layer(scalars["direction"])
        elif "matmul" in self.name:
            result = self.product()
        elif self.name in makers:
            result = makers[self.name]()
        elif entry.outputs:
            result = self.alike(inputs)
        else:
            return self.single(entry.tensors)
        if entry.infer is not None:
            described = entry.infer(**result, **scalars)
            for name, (pre, desc) in zip(entry.outputs, described, strict=True):
                result[name] = self.filled(Ztensor(pre, desc))
        return result

    def call(self) -> tuple[Guest, dict[str, Any]]:
        """Draw the guest and the arguments."""
        entry = FUNCTIONS[self.name]
        scalars = {
            name: self.scalar(name, parameter.annotation)
            for name, parameter in entry.parameters.items()
            if name not in entry.tensors and name != "data"
        }
        tensors = self.tensors(entry, scalars) if entry.tensors else {}
        if tensors:
            self.spoil(tensors)
        arguments: dict[str, Any] = {**tensors, **scalars}
        if "data" in entry.parameters:
            arguments["data"] = self.data(tensors["ztensor"])
        order = list(arguments)
        self.random.shuffle(order)
        return self.guest(), {name: arguments[name] for name in order}


def attempt(number: int) -> tuple[str, bool]:
    """Make one call, twice as a program would in a loop; tell its name and whether it was valid."""
    adversary = Adversary(number)
    guest, arguments = adversary.call()
    alignment = Alignment(*(adversary.often(0.03) for _ in range(3)))
    valid = False
    for _ in range(2):
        try:
            valid |= run(guest, adversary.name, arguments, alignment).valid
        except (ProgramCheck, Malformed, NotInLibrary):
            return adversary.name, valid
    return adversary.name, valid


def main(first: int, count: int) -> None:
    """Make `count` calls from number `first` on."""
    faulthandler.enable()
    counts = {name: [0, 0] for name in sorted(FUNCTIONS)}
    for number in range(first, first + count):
        os.write(1, b"%d\n" % number)
        name, valid = attempt(number)
        counts[name][0] += 1
        counts[name][1] += valid
    print(json.dumps(counts))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
