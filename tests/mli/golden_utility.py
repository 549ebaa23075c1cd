# SPDX-License-Identifier: Apache-2.0
"""Functions that run the cases of the reference files of utility functions."""

import mli_emulator as mli
import numpy as np
from mli_emulator import (
    Conversion,
    ElType,
    FxParams,
    MliStatus,
    Options,
    Rounding,
    SaParams,
    SubTensorCfg,
    Tensor,
)

from tests.mli.golden_records import (
    AGREES,
    NAMES,
    ROOM,
    UP,
    Json,
    Verdict,
    both_roundings,
    check_output,
    compare,
    dense,
    described,
    differs,
    el_params,
    image,
    listed,
    output,
    strided,
)


def convert_1x(case: Json) -> Verdict:
    """The FX subset of the conversion, in place where the file says so.

    1.1.1 also converts fx16 to fx8 in place, 2.0 requires equal containers: such cases run apart.
    """
    source, kind = case["src"], NAMES[case["dst_el_type"]]
    equal = source["el_type"] == case["dst_el_type"]

    def run(options: Options, up: bool) -> Verdict:
        src = dense(source, NAMES[source["el_type"]])
        dst = output(len(source["data"]), kind, case["dst_frac_bits"])
        if case["in_place"] and equal:
            dst.data, dst.shape, dst.rank = src.data, src.shape, src.rank
        outcome = mli.hlp_convert_tensor(src, dst, options=options)
        if outcome.status != case["status"]:
            return differs("status", outcome, case["status"])
        expected = {"rank": case["out"]["rank"], "shape": case["out"]["shape"]}
        data = case.get("out_data_round_up", case["out"]["data"]) if up else case["out"]["data"]
        return check_output(dst, expected, data)

    verdict = both_roundings(run)
    if case["in_place"] and not equal and verdict.agrees:
        return Verdict(True, True, "in place with another container size: run apart")
    return verdict


def convert(case: Json) -> Verdict:
    """The formula in both roundings; the arithmetic of both libraries where the file has it."""
    library, early = Conversion.LIBRARY_2_0_2, Conversion.LIBRARY_2_0_EA
    up = case.get("out_round_up", case["out"])
    expected = [
        (Options(), case.get("out_exact_formula", case["out"])),
        (Options(conversion=library), case["out"]),
        (Options(conversion=library, rounding=Rounding.UP), up),
        (Options(conversion=early), case.get("out_lib_2_0_ea", case["out"])),
    ]
    if "out_exact_formula" not in case:
        expected.append((UP, up))
    for options, values in expected:
        verdict = run_convert(case, options, values)
        if not verdict.agrees:
            return verdict
    return AGREES


def run_convert(case: Json, options: Options, values: list[int]) -> Verdict:
    """One conversion, by safx too where no side is fp32."""
    shape = case["src"]["shape"]
    fixed = "fp32" not in (case["src"]["el_type"], case["dst"]["el_type"])
    for function in (mli.hlp_convert_tensor, mli.hlp_convert_tensor_safx)[: 1 + fixed]:
        src = strided(case["src"], shape, case["src"]["data"])
        dst = strided(case["dst"], shape, None)
        outcome = function(src, dst, options=options)
        if outcome.status != case["status"]:
            return differs("status", outcome, case["status"])
        elements = listed(mli.to_array(dst))
        if elements != values:
            return differs(f"{options.conversion} {options.rounding}", elements, values)
    return AGREES


def convert_fields(case: Json) -> Verdict:
    """The early-access record: fields, strides, untouched gaps, values in its own arithmetic."""
    src, dst = (image(case[key]) for key in ("src", "dst_before"))
    expected = case["lib_2_0_ea"]
    options = Options(conversion=Conversion.LIBRARY_2_0_EA)
    outcome = mli.hlp_convert_tensor(src, dst, options=options)
    stale = is_stale(case["src"], case["dst_before"], expected["status"])
    if stale and outcome.status is MliStatus.MLI_STATUS_OK:
        shape = (dst.rank, list(dst.shape))
        wanted_shape = (case["src"]["rank"], case["src"]["shape"])
        verdict = compare({"shape": (shape, wanted_shape)})
        return Verdict(True, True, "stale destination rank") if verdict.agrees else verdict
    kind = {"fx16": np.int16, "sa32": np.int32, "fp32": np.uint32}
    assert dst.data is not None
    buffer = dst.data.view(kind.get(case["dst_before"]["el_type"], np.int8))
    return compare(
        {
            "status": (outcome.status, expected["status"]),
            "rank": (dst.rank, expected["dst_rank"]),
            "shape": (list(dst.shape), expected["dst_shape"]),
            "mem_stride": (list(dst.mem_stride), expected["dst_mem_stride"]),
            "buffer": (buffer.tolist(), expected["dst_buffer"]),
        }
    )


def is_stale(src: Json | None, dst: Json | None, status: int) -> bool:
    """The library looked at the rank that dst had before the call: a defect, not a condition."""
    refused = status == MliStatus.MLI_STATUS_INCOMPATEBLE_TENSORS
    return refused and src is not None and dst is not None and src["rank"] != dst["rank"]


def convert_status(case: Json) -> Verdict:
    """The status of the early-access library."""
    src, dst = described(case["src"]), described(case["dst"])
    if case["same_memory"] and src is not None and dst is not None and dst.data is not None:
        dst.data = src.data
        if src.data is not None and src.data.nbytes < dst.capacity:
            src.data = dst.data = np.zeros(dst.capacity + ROOM, np.uint8)
    outcome = mli.hlp_convert_tensor(src, dst)
    expected = MliStatus(case["status_2_0_ea"])
    if is_stale(case["src"], case["dst"], expected) and outcome.status is MliStatus.MLI_STATUS_OK:
        return Verdict(True, True, "stale destination rank")
    return compare({"status": (outcome.status, expected)})


def subtensor(case: Json) -> Verdict:
    """The early-access record: status, data pointer, capacity, shape, strides, parameters."""
    expected = case.get("lib_2_0_ea", case)
    x = described(case["in"])
    assert x is not None
    cfg = case["cfg"]
    out = mli.empty(0, ElType.MLI_EL_FX_8)
    slice_cfg = SubTensorCfg(tuple(cfg["offset"]), tuple(cfg["size"]), cfg["sub_tensor_rank"])
    outcome = mli.hlp_subtensor(x, slice_cfg, out)
    if outcome.status != expected["status"]:
        return differs("status", outcome, expected["status"])
    if outcome.status is not MliStatus.MLI_STATUS_OK:
        return AGREES
    return compare_slice(case, expected["out"], x, out)


def compare_slice(case: Json, after: Json, x: Tensor, out: Tensor) -> Verdict:
    """Every field of a sub-tensor, and the distance that its data pointer moved."""
    assert x.data is not None
    assert out.data is not None
    rank = after["rank"]
    shape = after.get("shape", after.get("shape4", []))[:rank]
    strides = after.get("mem_stride", after.get("mem_stride4", []))[:rank]
    moved = out.data.ctypes.data - x.data.ctypes.data
    return compare(
        {
            "offset": (moved, after["data_byte_offset"]),
            "capacity": (out.capacity, after["capacity"]),
            "rank": (out.rank, rank),
            "shape": (list(out.shape), shape),
            "mem_stride": (list(out.mem_stride), strides),
            "el_type": (out.el_type, x.el_type),
            "el_params": (out.el_params, sliced(case, after)),
        }
    )


def sliced(case: Json, after: Json) -> FxParams | SaParams | None:
    """The parameters that the record describes; a dropped axis keeps the values at its offset."""
    before = el_params(case["in"])
    if not isinstance(before, SaParams) or before.dim < 0:
        return before
    start, length = (case["cfg"][key][before.dim] for key in ("offset", "size"))
    if after["dim"] >= 0 and "quant_array_offset" in after:
        start = after["quant_array_offset"][0]
    part = slice(start, start + length)
    columns = (before.zero_point[part], before.scale[part], before.scale_frac_bits[part])
    return SaParams(*columns, after["dim"])


def helpers(case: Json) -> Verdict:
    """Element size, element count, quantisation getters."""
    if case["fn"] == "count_elem_num":
        x = Tensor(None, 0, tuple(case["shape"]), case["rank"], ElType.MLI_EL_FX_8, None)
        actual, expected = (
            mli.hlp_count_elem_num(x, case["start_dim"]),
            case["result_ret_codes_mode"],
        )
        if case["start_dim"] == case["rank"] and (actual, expected) == (1, 0):
            return Verdict(True, True, "start_dim = rank counts 1")
        return compare({"count": (actual, expected)})
    kind = NAMES[case["el_type"]] if case.get("el_type") in NAMES else case["el_type_code"]
    x = Tensor(None, 0, (1,), 1, kind, el_params(case))
    if case["fn"] == "element_size":
        return compare({"size": (mli.hlp_tensor_element_size(x), case["result"])})
    idx = case["idx"]
    return compare(
        {
            "scale": (mli.hlp_tensor_scale(x, idx), case["scale_result"]),
            "shift": (mli.hlp_tensor_scale_shift(x, idx), case["scale_shift_result"]),
            "zero": (mli.hlp_tensor_zero_offset(x, idx), case["zero_offset_result"]),
        }
    )
