# SPDX-License-Identifier: Apache-2.0
"""Tensors and verdicts of the reference records of the MLI library."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import mli_emulator as mli
import numpy as np
from mli_emulator import ElType, FxParams, Options, Outcome, Rounding, SaParams, Tensor

Json = Mapping[str, Any]  # a decoded reference record: its shape is the file's own

NAMES = {
    "fx8": ElType.MLI_EL_FX_8,
    "fx16": ElType.MLI_EL_FX_16,
    "sa8": ElType.MLI_EL_SA_8,
    "sa32": ElType.MLI_EL_SA_32,
    "fp32": ElType.MLI_EL_FP_32,
}
NUMBERS_1X = dict(enumerate(NAMES.values()))  # mli_element_type of 1.1: FX_8, FX_16, ASYM_I8, ...
TYPES = {  # variant: io type, weight type
    "fx8": (ElType.MLI_EL_FX_8, ElType.MLI_EL_FX_8),
    "fx16": (ElType.MLI_EL_FX_16, ElType.MLI_EL_FX_16),
    "fx8w16d": (ElType.MLI_EL_FX_16, ElType.MLI_EL_FX_8),
}
SIZES = {ElType.MLI_EL_FX_8: 1, ElType.MLI_EL_FX_16: 2, ElType.MLI_EL_SA_8: 1}
UP = Options(rounding=Rounding.UP)
ROOM = 4096  # bytes behind the tensors of status cases, which describe memory without holding it


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of one case: ``note`` names a mapping, or the difference."""

    agrees: bool
    mapped: bool = False
    note: str = ""


AGREES = Verdict(True)


def differs(what: str, actual: object, expected: object) -> Verdict:
    """Describe a difference briefly."""
    return Verdict(False, note=f"{what}: {str(actual)[:200]} instead of {str(expected)[:200]}")


def call(name: str, **arguments: object) -> Outcome:
    """Call a kernel by its documented name."""
    outcome = mli.find(name).function(**arguments)
    assert isinstance(outcome, Outcome)
    return outcome


def compare(pairs: Mapping[str, tuple[object, object]]) -> Verdict:
    """Compare the actual and the expected value of each name."""
    for what, (actual, expected) in pairs.items():
        if actual != expected:
            return differs(what, actual, expected)
    return AGREES


def listed(values: np.ndarray[Any, Any]) -> list[Any]:
    """Flatten to Python numbers; fp32 as bit patterns, the files' convention."""
    return list((values.view(np.uint32) if values.dtype == np.float32 else values).ravel().tolist())


def dense(record: Json, el_type: ElType) -> Tensor:
    """A dense FX tensor of a 1.x record; runs of equal values may be run-length coded."""
    data = record.get("data")
    if data is None:
        data = [value for value, times in record["data_rle"] for _ in range(times)]
    array = np.array(data).reshape(record["shape"])
    return mli.from_array(array, el_type, FxParams(record["frac_bits"]))


def output(elements: int, el_type: ElType, frac_bits: int | None = None) -> Tensor:
    """An output tensor with room for the elements."""
    return mli.empty(
        elements * SIZES[el_type], el_type, None if frac_bits is None else FxParams(frac_bits)
    )


def described(record: Json | None, el_type: int | None = None) -> Tensor | None:
    """A tensor of a status case: fields as recorded, zero bytes behind it."""
    if record is None:
        return None
    data = None if record.get("data_null") else np.zeros(record["capacity"] + ROOM, np.uint8)
    kind = NAMES[record["el_type"]] if el_type is None else el_type
    return Tensor(
        data,
        record["capacity"],
        tuple(record["shape"]),
        record["rank"],
        kind,
        el_params(record),
        tuple(record["mem_stride"]),
    )


def el_params(record: Json) -> FxParams | SaParams | None:
    """FX, SA or no element parameters, by the fields of the record."""
    if "frac_bits" in record:
        return FxParams(record["frac_bits"])
    if "scale" not in record:
        return None
    zero_point, scale, bits = (tuple(record[k]) for k in ("zero_point", "scale", "scale_frac_bits"))
    return SaParams(zero_point, scale, bits, record["dim"])


def fields(tensor: Tensor) -> dict[str, object]:
    """The fields that kernels of 1.x fill, as the files name them."""
    bits = tensor.el_params.frac_bits if isinstance(tensor.el_params, FxParams) else None
    number = {kind: n for n, kind in NUMBERS_1X.items()}[ElType(tensor.el_type)]
    shape = list(tensor.shape)
    return {"rank": tensor.rank, "shape": shape, "el_type": number, "frac_bits": bits}


def check_output(tensor: Tensor, expected: Json, data: list[int] | None) -> Verdict:
    """Compare an output's fields, and its data with ``data`` or else with ``expected``'s."""
    actual = fields(tensor)
    pairs = {key: (actual[key], expected[key]) for key in actual if key in expected}
    pairs["data"] = (listed(mli.to_array(tensor)), expected["data"] if data is None else data)
    return compare(pairs)


def both_roundings(run: Callable[[Options, bool], Verdict]) -> Verdict:
    """Run convergent, then mode up; a record has no keys of up where both give the same."""
    verdict = run(Options(), False)
    return run(UP, True) if verdict.agrees else verdict


def strided(record: Json, shape: list[int], values: list[int] | None) -> Tensor:
    """A 2.0 tensor with the record's strides; values are logical, fp32 as bit patterns."""
    kind = NAMES[record["el_type"]]
    dtype = {"fp32": np.uint32, "sa32": np.int32, "fx16": np.int16}.get(record["el_type"], np.int8)
    strides = record["mem_stride"]
    extent = 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
    memory = np.zeros(extent, dtype)
    if values is not None:
        steps = tuple(s * memory.itemsize for s in strides)
        view = np.lib.stride_tricks.as_strided(memory, tuple(shape), steps)
        view[...] = np.array(values, dtype).reshape(shape)
    data = memory.view(np.uint8)
    size, rank = tuple(shape), len(shape)
    return Tensor(data, data.nbytes, size, rank, kind, el_params(record), tuple(strides))


def image(record: Json) -> Tensor:
    """A tensor over a raw memory image."""
    kind = {"fx16": np.int16, "sa32": np.int32, "fp32": np.uint32}
    data = np.array(record["buffer"], kind.get(record["el_type"], np.int8)).view(np.uint8)
    shape, strides = tuple(record["shape"]), tuple(record["mem_stride"])
    el_type = NAMES[record["el_type"]]
    return Tensor(data, data.nbytes, shape, record["rank"], el_type, el_params(record), strides)
