# SPDX-License-Identifier: Apache-2.0
"""`nnpa demo`: handwritten digits through the zDNN call sequence, checked against numpy.

The digits are real ones (data/README.md). For each of 200 images of 64 pixels the accelerator
computes (pixel - mean pixel)^2, the elements of the distance from the average digit. The same
arithmetic is done here in numpy with a DLFLOAT16 rounding of its own, and must agree bit for bit.
"""

import time
from dataclasses import dataclass
from importlib.resources import files
from statistics import median

import numpy as np
import numpy.typing as npt

from nnpa_client import zdnn
from nnpa_client.connection import connect
from nnpa_client.errors import ZdnnError
from nnpa_client.session import Session
from nnpa_client.status import Status

MACHINES = ("telum1", "telum2")
_ROUNDS = 5

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Report:
    """What the demo found on one machine; bytes, counts of values, milliseconds."""

    machine: str
    display_name: str
    shape: tuple[int, ...]
    dense_bytes: int
    stick_shape: tuple[int, ...]
    stick_bytes: int
    values: int
    equal: int
    worst_error: float
    round_trip_ms: float
    sqrt_status: str
    as_promised: bool


def digits() -> Floats:
    """Return 200 images as rows of 64 pixels, 0 to 1."""
    with (files("nnpa_client") / "data" / "digits.npz").open("rb") as file:
        images: npt.NDArray[np.uint8] = np.load(file, allow_pickle=False)["images"]
    return images.reshape(len(images), -1).astype(np.float32) / np.float32(16)


def dlfloat16(values: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Round to DLFLOAT16, 9 fraction bits, ties away from zero; for 0 and normal magnitudes.

    Source: zDNN API Reference 1.2.0, "DLFLOAT16"; Agrawal et al., "DLFloat", ARITH 2019.
    """
    fraction, exponent = np.frexp(np.asarray(values, np.float64))
    rounded = np.floor(np.abs(fraction) * 1024 + 0.5) / 1024
    return np.ldexp(np.copysign(rounded, fraction), exponent)


def run(target: str | None = None) -> list[Report]:
    """Run the demo on both Telums of a server; None starts a private one."""
    images = digits()
    mean = np.broadcast_to(images.mean(axis=0), images.shape).astype(np.float32)
    reports: list[Report] = []
    with connect(target) as first:
        for machine in MACHINES:
            with connect(first.target, machine) as session:
                reports.append(_on_machine(session, machine, images, mean))
    return reports


def _on_machine(session: Session, machine: str, images: Floats, mean: Floats) -> Report:
    pre = zdnn.init_pre_transformed_desc(zdnn.ZDNN_2D, zdnn.FP32, *images.shape)
    tfrmd = zdnn.generate_transformed_desc(pre)
    times: list[float] = []
    result = np.empty_like(images)
    for _ in range(_ROUNDS):
        start = time.perf_counter()
        _squared_difference(session, pre, tfrmd, images, mean, result)
        times.append(1000 * (time.perf_counter() - start))
    difference = dlfloat16(dlfloat16(images) - dlfloat16(mean))
    expected = dlfloat16(difference * difference)
    exact = np.square(images.astype(np.float64) - mean)
    equal = int(np.count_nonzero(result == expected))
    sqrt_status = _sqrt_status(session, result)
    promised = "ZDNN_UNAVAILABLE_FUNCTION" if machine == "telum1" else "ZDNN_OK"
    return Report(
        machine,
        session.machine.display_name,
        images.shape,
        images.nbytes,
        (tfrmd.dim4, tfrmd.dim3, tfrmd.dim2, tfrmd.dim1),
        zdnn.getsize_ztensor(tfrmd),
        result.size,
        equal,
        float(np.abs(result - exact).max()),
        median(times),
        sqrt_status,
        equal == result.size and sqrt_status == promised,
    )


def _squared_difference(
    session: Session,
    pre: zdnn.TensorDesc,
    tfrmd: zdnn.TensorDesc,
    images: Floats,
    mean: Floats,
    result: Floats,
) -> None:
    """Fill `result`: the whole zDNN call sequence, in one round trip."""
    with session.pipeline():
        a = session.init_ztensor_with_malloc(pre, tfrmd)
        b = session.init_ztensor_with_malloc(pre, tfrmd)
        out = session.init_ztensor_with_malloc(pre, tfrmd)
        zdnn.transform_ztensor(a, images)
        zdnn.transform_ztensor(b, mean)
        zdnn.sub(a, b, out)
        squared = zdnn.mul(out, out)
        zdnn.transform_origtensor(squared, result)
        for ztensor in (a, b, out, squared):
            zdnn.free_ztensor_buffer(ztensor)


def _sqrt_status(session: Session, values: Floats) -> str:
    """Return the status of an operation that only Telum II has."""
    try:
        zdnn.sqrt(session.ztensor(values))
    except ZdnnError as error:
        return error.name
    return Status.ZDNN_OK.name
