# SPDX-License-Identifier: Apache-2.0
"""The law: a call of the library, and the instructions that it issues, end the same.

Bits of all tensors, statuses, states and what ends the program. NNPA_LAW_CALLS says how many random
calls are made; the default takes seconds.
"""

import copy
import itertools
import os
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
from nnpa.zdnn.v1 import accelerator_pb2 as accelerator
from nnpa_emulator import Alignment, Guest, Outcome, ProgramCheck, Ztensor, pipeline
from nnpa_emulator.conversion import runs_in_hardware
from nnpa_emulator.machine import FunctionCode, page_memory
from nnpa_emulator.pipeline import FUNCTIONS, Call
from nnpa_emulator.status import Malformed, NotInLibrary, Refused, Status
from nnpa_emulator.ztensor import DataLayouts, DataTypes

from tests.emulator import target
from tests.emulator.adversary import Adversary
from tests.emulator.library_sequences import Issuer, issue_one
from tests.emulator.longer_sequences import layer, product_of_bytes, stick_data, unstick_data
from tests.vector_runner import load
from tests.vector_runner import run as run_vector

CALLS = int(os.environ.get("NNPA_LAW_CALLS", "400"))
End: TypeAlias = tuple[Any, ...]


def _library(issuer: Issuer, name: str, arguments: dict[str, Any]) -> int | None:
    """Do what the library does; None where it issues nothing."""
    if name in ("lstm", "gru"):
        return layer(issuer, name, arguments)
    if name == "quantized_matmul_op":
        return product_of_bytes(issuer, arguments)
    return issue_one(issuer, name, arguments)


def _end(status: int, arguments: dict[str, Any]) -> End:
    """Return how a call ended: its status, and states and sticks of its tensors."""
    tensors = {key: ztensor for key, ztensor in arguments.items() if isinstance(ztensor, Ztensor)}
    return int(status), {
        key: (ztensor.is_transformed, None if ztensor.buffer is None else ztensor.buffer.tobytes())
        for key, ztensor in tensors.items()
    }


def _by_instructions(issuer: Issuer, name: str, arguments: dict[str, Any]) -> End | None:
    try:
        status = _library(issuer, name, arguments)
    except ProgramCheck as check:
        return ("program check", check.kind)
    except Refused as refused:  # by software
        status = refused.refusal.status
    except MemoryError:
        status = Status.ZDNN_ALLOCATION_FAILURE
    return None if status is None else _end(status, arguments)


def _is_wide(arguments: dict[str, Any]) -> bool:
    """Tell whether a number does not fit the field that a block has for it: the library cuts it."""
    descs = [
        ztensor.transformed_desc for ztensor in arguments.values() if isinstance(ztensor, Ztensor)
    ]
    return any(
        not (0 <= desc.format < 256 and 0 <= desc.type < 256)
        or any(not 0 <= size < 1 << 32 for size in desc.dims)
        for desc in descs
    )


def _is_exempt(name: str, arguments: dict[str, Any]) -> bool:
    """Tell whether the pipeline differs on purpose.

    It refuses quantized_matmul_op of weights that are no bytes, which the library reads as bytes;
    and it reads the weights of a layer once, whatever the layer writes over them.
    """
    if name == "quantized_matmul_op":
        weights: Ztensor = arguments["input_b"]
        return weights.transformed_desc.type != DataTypes.ZDNN_BINARY_INT8
    outputs = FUNCTIONS[name].outputs
    written = [arguments[key].buffer for key in outputs]
    read = [item.buffer for key, item in arguments.items()
            if isinstance(item, Ztensor) and key not in outputs]  # fmt: skip
    return name in ("lstm", "gru") and any(
        item is second for item in written for second in read if item is not None
    )


def compare(call: Call, name: str, arguments: dict[str, Any], counts: Counter[int]) -> None:
    """Make a call both ways, on copies; AssertionError says where they differ."""
    if _is_exempt(name, arguments):
        return
    guest, alignment = call.guest, call.alignment
    issuer = Issuer(guest, alignment, counts)
    mine, theirs = copy.deepcopy(arguments), copy.deepcopy(arguments)
    try:
        outcome = pipeline.run(guest, name, mine, alignment)
        end = _end(outcome.status, mine)
    except ProgramCheck as check:
        end = ("program check", check.kind)
    except (Malformed, NotInLibrary):
        return
    if name.startswith("transform"):
        _compare_transform(issuer, name, end, mine, theirs)
        return
    issued = _by_instructions(issuer, name, theirs)
    if issued is None:
        return
    if name in ("lstm", "gru") and isinstance(end[0], int) and end[0]:
        assert issued[0] == end[0]  # a layer computes ahead of the instruction that ends it
        return
    assert issued == end


def _compare_transform(
    issuer: Issuer, name: str, end: End, mine: dict[str, Any], theirs: dict[str, Any]
) -> None:
    """Make a transform by the instruction where the library did."""
    tensor: Ztensor = mine["ztensor"]
    desc = tensor.transformed_desc
    in_hardware = (
        end[0] in (0, 0x20001)
        and name != "transform_quantized_ztensor"
        and desc.layout == DataLayouts.ZDNN_NHWC
        and tensor.pre_transformed_desc.layout not in (DataLayouts.ZDNN_4DS, DataLayouts.ZDNN_NCHW)
        and (desc.dim1 > 2 or name.endswith("saturation"))
        and runs_in_hardware(Call(issuer.guest), tensor, desc.dims)
    )
    if not in_hardware:
        return
    ztensor = theirs["ztensor"]
    if name == "transform_origtensor":
        status, values = unstick_data(issuer, ztensor)
        outcome = pipeline.run(issuer.guest, name, mine)
        assert status == outcome.status
        assert isinstance(outcome.value, np.ndarray)
        np.testing.assert_array_equal(values, outcome.value.reshape(-1))
        return
    saturate = name.endswith("saturation")
    status = stick_data(issuer, ztensor, theirs["data"][0], saturate=saturate)
    assert _end(status, {"ztensor": ztensor}) == end


def test_random_calls() -> None:
    """Calls as an adversary makes them."""
    counts, produced = Counter[int](), 0
    for number in itertools.count():
        if produced == CALLS:
            break
        adversary = Adversary(number)
        guest, arguments = adversary.call()
        if _is_wide(arguments):
            continue
        guest = replace(guest, precheck=False, numerics="exact", allocate=page_memory)
        for clip in ("clip_min", "clip_max"):
            if clip in arguments:
                arguments[clip] = int(np.array(arguments[clip]).astype(np.int8))  # as C has it
        alignment = Alignment(*(adversary.often(0.03) for _ in range(2)))
        produced += 1
        try:
            compare(Call(guest, alignment), adversary.name, arguments, counts)
        except (AssertionError, ArithmeticError, LookupError, ValueError) as error:
            raise AssertionError(f"call {number}, {adversary.name}: {str(error)[:2000]}") from error
    print(f"{produced} calls, {counts.total()} instructions: {_told(counts)}")
    assert len(counts) == 29 or CALLS < 2000


def _told(counts: Counter[int]) -> dict[str, int]:
    return {FunctionCode(code).name: counts[code] for code in sorted(counts)}


class _BothWays(target.InProcess):
    """A session that makes each call by instructions too."""

    def __init__(self, guest: Guest, counts: Counter[int]) -> None:
        super().__init__(guest)
        self._counts = counts

    def call(self, name: str, arguments: dict[str, Any], alignment: Alignment) -> Outcome:
        """Compare both ways, then go on with the pipeline's."""
        compare(Call(self.guest, alignment), name, arguments, self._counts)
        return super().call(name, arguments, alignment)


def test_vectors() -> None:
    """All vectors without precheck."""
    counts, vectors = Counter[int](), Counter[int]()
    for vector in load():
        if vector.line.get("precheck"):
            continue
        of_vector = Counter[int]()

        @contextmanager
        def both(
            setting: accelerator.Session, counts: Counter[int] = of_vector
        ) -> Generator[_BothWays]:
            machine = target.machine_of(setting.machine_spec)
            yield _BothWays(Guest(machine, setting.library_version), counts)

        run_vector(vector, both)
        counts += of_vector
        vectors += Counter(of_vector.keys())
    print(f"{counts.total()} instructions: {_told(counts)}; vectors by code: {_told(vectors)}")
    assert len(counts) == 29
