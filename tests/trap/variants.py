# SPDX-License-Identifier: Apache-2.0
"""More calls than the shared vectors have: comparisons with the emulator, not vectors.

Shapes and contents are drawn from a seed. The expected answers come from the emulator in process,
by its reference arithmetic: equal answers show that two ways to the emulator agree, and no more.
"""

import multiprocessing
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
from nnpa.zdnn.v1 import accelerator_pb2 as accelerator
from nnpa.zdnn.v1 import operation_pb2 as wire
from nnpa.zdnn.v1 import tensor_pb2 as tensors
from nnpa_emulator import kernels

from tests import vector_runner
from tests.conformance.plain import words_of
from tests.emulator.target import emulator
from tests.libzdnn.scenes import MAKERS, Scene, Shape
from tests.vector_runner import CallFailedError, Vector, cell_bytes

TRANSFORMS = ("transform_ztensor", "transform_ztensor_with_saturation", "transform_origtensor")
RARE = (
    *("gelu", "batchnorm", "moments", "layernorm", "norm", "reduce"),
    *("matmul_bcast_op", "quantized_matmul_op"),
)
"""What issues the codes that the shared vectors reach fewer than five times."""
FEW = 6
FUNCTIONS = (*MAKERS, *TRANSFORMS)
_LARGEST = 1 << 16  # bytes of a tensor
_ROWS, _COLUMNS = (33, 40, 65), (64, 65, 100)  # more than 2048 elements: the machine transforms
_PRODUCTS = ("matmul_bcast_op", "matmul_transpose_op", "quantized_matmul_op")
_ONE_LEFT = 0.4  # how many products have one left matrix
_INT8 = tensors.ZDNN_BINARY_INT8


def drawn(count: int, functions: Sequence[str] = FUNCTIONS) -> list[Vector]:
    """Return `count` comparisons of each function."""
    spawning = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, spawning, initializer=kernels.use_reference) as reference:
        names = [(function, seed) for function in functions for seed in range(count)]
        return list(reference.map(_made, names, chunksize=len(names)))


def whole() -> bool:
    """Return whether NNPA_TRAP_VARIANTS asks for comparisons of each function."""
    return bool(os.environ.get("NNPA_TRAP_VARIANTS"))


def asked_for() -> list[Vector]:
    """Return NNPA_TRAP_VARIANTS comparisons of each function, else a few of the rare codes."""
    return drawn(int(os.environ["NNPA_TRAP_VARIANTS"])) if whole() else drawn(FEW, RARE)


def _made(name: tuple[str, int]) -> Vector:
    function, seed = name
    random = Random(f"{function} {seed}")
    line = _transform(function, random) if function in TRANSFORMS else _call(function, random)
    vector = Vector(function, {"name": f"variant_{seed}", "machine": "telum2", **line})
    return Vector(function, {**vector.line, "steps": [_expecting(vector)]})


def _codes(random: Random, shape: Shape) -> str:
    """Return cells: any INT8, or codes of moderate numbers and sometimes any code."""
    count = int(np.prod(shape.dims))
    if shape.type == _INT8:
        return " ".join(f"{random.randrange(256):02X}" for _ in range(count))
    wild = random.random() < 0.1
    cells = (
        random.randrange(1 << 16) if wild else random.randrange(0x3A00, 0x4200) | _sign(random)
        for _ in range(count)
    )
    return " ".join(f"{cell:04X}" for cell in cells)


def _sign(random: Random) -> int:
    return random.choice((0, 0x8000))


def _ztensor(random: Random, shape: Shape, written: bool) -> dict[str, Any]:
    message = shape.message()
    line: dict[str, Any] = {
        "pre_transformed_desc": _described(message.pre_transformed_desc),
        "transformed_desc": _described(message.transformed_desc),
        "rec_scale": random.choice((1.0, 0.25, 0.1)),
        "offset": random.choice((0.0, 3.0)),
    }
    if not written:
        line.update(is_transformed=True, codes=_codes(random, shape))
    return line


def _described(desc: tensors.TensorDesc) -> dict[str, int]:
    names = [field.name for field in desc.DESCRIPTOR.fields]
    return {name: int(getattr(desc, name)) for name in names}


def _call(function: str, random: Random) -> dict[str, Any]:
    """Return a call of an operation that fits together."""
    message = wire.Operation.DESCRIPTOR.fields_by_name[function].message_type
    assert message is not None, function
    fields = message.fields_by_name
    while True:
        scene = MAKERS[function](random)
        if function in _PRODUCTS and random.random() < _ONE_LEFT:
            scene = _one_left(scene)
        if all(_bytes(shape) <= _LARGEST for shape in scene.operands.values()):
            break
    numbers = {operand: at for at, operand in enumerate(fields, 1) if operand in scene.operands}
    arm: dict[str, Any] = {operand: {"id": at} for operand, at in numbers.items()}
    arm.update((key, value) for key, value in scene.scalars.items() if key in fields)
    held = {
        str(at): _ztensor(random, scene.operands[operand], "output" in operand)
        for operand, at in numbers.items()
    }
    return {"tensors": held, "steps": [{"operation": {function: arm}}]}


def _one_left(scene: Scene) -> Scene:
    """Return a product of one matrix with each of three."""
    stacks = {"input_a": 1, "input_b": 3, "input_c": 3, "output": 3}
    operands = {
        operand: replace(shape, dims=(stacks[operand], *shape.dims[1:]))
        for operand, shape in scene.operands.items()
    }
    return replace(scene, operands=operands)


def _bytes(shape: Shape) -> int:
    d4, d3, d2, d1 = shape.dims
    return d4 * d3 * -(-d2 // 32) * -(-d1 // 64) * 4096


def _transform(function: str, random: Random) -> dict[str, Any]:
    """Return a transform of a large tensor between FP32 and sticks."""
    shape = Shape((random.choice((1, 2)), 1, random.choice(_ROWS), random.choice(_COLUMNS)))
    back = function == "transform_origtensor"
    step: dict[str, Any] = {"operation": {function: {"ztensor": {"id": 1}}}}
    if not back:
        numbers = np.random.default_rng(random.randrange(1 << 32)).normal(0, 1000, shape.dims)
        step["data"] = [words_of(numbers.astype("<f4").tobytes(), 4)]
    return {"tensors": {"1": _ztensor(random, shape, not back)}, "steps": [step]}


def _expecting(vector: Vector) -> dict[str, Any]:
    """Return the vector's step with the emulator's answer."""
    step = dict(vector.line["steps"][0])
    operation = next(vector_runner.operations(vector))
    spec = vector_runner.machine_spec(vector.line)
    session = accelerator.Session(machine_spec=spec, library_version="1.2.0")
    with emulator(session) as target:
        try:
            result = target.execute(operation)
        except CallFailedError as failed:
            return {**step, "error": failed.reason}
    step["status"] = result.zdnn_status
    if result.data:
        step["data_out"] = words_of(result.data, 4)
    step["outputs"] = dict(_outputs(vector, result))
    return step


def _outputs(vector: Vector, result: wire.OperationResult) -> Iterator[tuple[str, dict[str, Any]]]:
    for info in result.outputs:
        if vector.function == "transform_origtensor":
            continue
        width = cell_bytes(info.ztensor.transformed_desc)
        memory = words_of(info.ztensor.sticks, width)
        yield info.operand, {"memory": memory, "is_transformed": info.ztensor.is_transformed}
