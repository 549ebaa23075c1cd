# SPDX-License-Identifier: Apache-2.0
"""Functions that run the cases of the reference files of 1.x kernels."""

import mli_emulator as mli
import numpy as np
from mli_emulator import (
    Accumulator,
    ElType,
    FxParams,
    MliStatus,
    Options,
    Outcome,
    RnnCellCfg,
    RnnMode,
    RnnOutActivation,
    Tensor,
)

from tests.mli.golden_records import (
    AGREES,
    NAMES,
    NUMBERS_1X,
    TYPES,
    Json,
    Verdict,
    both_roundings,
    call,
    check_output,
    compare,
    dense,
    described,
    differs,
    fields,
    listed,
    output,
)


def fully_connected(case: Json) -> Verdict:
    """Values, fields and status, in both roundings."""
    variant = case["file"].removeprefix("v1_fully_connected_")

    def run(options: Options, up: bool) -> Verdict:
        outcome, out = run_fully_connected(case, variant, options)
        if outcome.status != case["status"]:
            return differs("status", outcome, case["status"])
        return check_output(out, case["out"], case.get("out_data_round_up") if up else None)

    return both_roundings(run)


def run_fully_connected(case: Json, variant: str, options: Options) -> tuple[Outcome, Tensor]:
    """Call the kernel; weights are laid out with the record's row pitch."""
    io, weight_type = TYPES[variant]
    weights = dense(case["weights"], weight_type)
    strides = tuple(case["weights"].get("mem_stride", ()))
    pitch = strides[0] if strides else 0
    if pitch > weights.shape[1]:
        rows = np.zeros((weights.shape[0], pitch), np.int64)
        rows[:, : weights.shape[1]] = mli.to_array(weights)
        padded = mli.from_array(rows, weight_type, weights.el_params)
        weights.data, weights.capacity = padded.data, padded.capacity
    weights.mem_stride = strides
    out = output(weights.shape[0], io, case["out_frac_bits"])
    outcome = call(
        f"mli_krn_fully_connected_{variant}",
        in_=dense(case["in"], io),
        weights=weights,
        bias=dense(case["bias"], weight_type),
        out=out,
        options=options,
    )
    return outcome, out


def configuration(case: Json, ir: Tensor | None) -> RnnCellCfg:
    """``mode`` and ``act`` by name."""
    mode = RnnMode[f"RNN_{case['mode'].upper()}"]
    return RnnCellCfg(mode, RnnOutActivation[f"RNN_ACT_{case['act'].upper()}"], ir)


def untouched(elements: int, io: ElType) -> Tensor:
    """An intermediate tensor holding 33 everywhere, the value the files start from."""
    return mli.from_array(np.full(elements, 33), io, FxParams(0))


def basic_rnn(case: Json) -> Verdict:
    """Values, fields, status and the intermediate data, in both roundings."""
    variant = case["file"].removeprefix("v1_basic_rnn_")
    io, weight_type = TYPES[variant]

    def run(options: Options, up: bool) -> Verdict:
        tensors = {"in_": dense(case["in"], io), "prev_out": dense(case["prev_out"], io)}
        bias = dense(case["bias"], weight_type)
        ir = untouched(int(np.prod(bias.shape)), io)
        out = output(len(case["out"]["data"]), io, case["out_frac_bits_before"])
        outcome = call(
            f"krn_basic_rnn_cell_{variant}",
            **tensors,
            weights=dense(case["weights"], weight_type),
            bias=bias,
            cfg=configuration(case, ir),
            out=out,
            options=options,
        )
        if outcome.status != case["status"]:
            return differs("status", outcome, case["status"])
        verdict = check_output(out, case["out"], case.get("out_data_round_up") if up else None)
        if verdict.agrees and "ir_data_after" in case and not up:
            return compare({"ir": (listed(mli.to_array(ir)), case["ir_data_after"])})
        return verdict

    return both_roundings(run)


def lstm(case: Json) -> Verdict:
    """Values, fields, status, cell and intermediate tensor, in both roundings, shared or apart."""
    variant = case["file"].removeprefix("v1_lstm_")

    def run(options: Options, up: bool) -> Verdict:
        verdict = AGREES
        for shared in (False, True):
            verdict = run_lstm(case, variant, options, up, shared)
            if not verdict.agrees:
                break
        return verdict

    return both_roundings(run)


def run_lstm(case: Json, variant: str, options: Options, up: bool, shared: bool) -> Verdict:
    """One call; ``shared`` puts out and prev_out into the same memory."""
    io, weight_type = TYPES[variant]
    cell, prev_out = dense(case["cell"], io), dense(case["prev_out"], io)
    out = output(len(case["out"]["data"]), io)
    if shared and out.data is not None and prev_out.data is not None:
        out.data[: prev_out.capacity] = prev_out.data
        prev_out.data = out.data
    ir = output(4 * cell.shape[0], io)
    outcome = call(
        f"krn_lstm_cell_{variant}",
        in_=dense(case["in"], io),
        prev_out=prev_out,
        weights=dense(case["weights"], weight_type),
        bias=dense(case["bias"], weight_type),
        cfg=configuration(case, ir),
        cell=cell,
        out=out,
        options=options,
    )
    if outcome.status != case["status"]:
        return differs("status", outcome, case["status"])
    verdict = check_output(out, case["out"], case.get("out_data_round_up") if up else None)
    if not verdict.agrees:
        return verdict
    after = case.get("cell_data_after_round_up") if up else None
    expected = case["cell_data_after"] if after is None else after
    if listed(mli.to_array(cell)) != expected:
        return differs("cell", listed(mli.to_array(cell)), expected)
    return AGREES if up else check_output(ir, case["ir_after"], None)


def activation(case: Json) -> Verdict:
    """Every input of the file, in both roundings."""
    function, kind = case["file"].removeprefix("v2_approx_").removeprefix("v1_").split("_")
    el_type = NAMES[kind]
    data = case.get("in_data", list(range(-128, 128)))

    def run(options: Options, up: bool) -> Verdict:
        x = mli.from_array(np.array(data), el_type, FxParams(case["in_frac_bits"]))
        out = output(len(data), el_type)
        outcome = call(f"krn_{function}_{kind}", in_=x, out=out, options=options)
        if outcome.status is not MliStatus.MLI_STATUS_OK:
            return differs("status", outcome, 0)
        expected = case.get("out_round_up", case["out"]) if up else case["out"]
        bits = case.get("out_frac_bits", fields(out)["frac_bits"])
        elements = listed(mli.to_array(out))
        return compare({"data": (elements, expected), "bits": (fields(out)["frac_bits"], bits)})

    return both_roundings(run)


def kernel_status(case: Json) -> Verdict:
    """The status of the 1.1.1 library built with RET_CODES."""
    tensors = {
        key: None if t is None else described(t, NUMBERS_1X.get(t["el_type"], t["el_type"]))
        for key, t in case["tensors"].items()
    }
    arguments: dict[str, object] = {"in_" if key == "in" else key: t for key, t in tensors.items()}
    ir = arguments.pop("ir", None)
    cfg = case.get("cfg")
    if case["kernel"] != "fully_connected":
        assert ir is None or isinstance(ir, Tensor)
        arguments["cfg"] = None if cfg is None else configuration(cfg, ir)
    outcome = call(f"krn_{case['kernel']}_{case['variant']}", **arguments)
    constraint = None if outcome.refusal is None else outcome.refusal.constraint
    if case["status"] == 0 and constraint == "basic_rnn_cell_c21":
        return Verdict(True, True, "output too small for the basic RNN cell")
    return compare({"status": (outcome.status, MliStatus(case["status"]))})


def overflow(case: Json) -> Verdict:
    """The assumed hardware accumulators."""
    options = Options(accumulator=Accumulator.HARDWARE)
    outcome, out = run_fully_connected(case, case["variant"], options)
    elements = listed(mli.to_array(out))
    flagged = (outcome.accumulator_overflow, True)
    return compare(
        {"status": (outcome.status, 0), "data": (elements, case["out_data"]), "flag": flagged}
    )


def fully_connected_2_0(case: Json) -> Verdict:
    """The 1.x kernel on the 2.0 layout, transposed."""
    kind = case["file"].removeprefix("v2_approx_fully_connected_")
    n, m = case["weights"]["shape"]
    rows = np.array(case["weights"]["data"]).reshape(n, m).T
    weights = {**case["weights"], "shape": [m, n], "mem_stride": [], "data": rows.ravel().tolist()}
    variant = "fx8w16d" if kind == "fx16_fx8_fx8" else kind
    _, out = run_fully_connected({**case, "weights": weights}, variant, Options())
    return compare({"data": (listed(mli.to_array(out)), case["out_data"])})


def other_generation(case: Json) -> Verdict:
    """Kernels of 2.0 whose tensors the 1.x kernels cannot express."""
    return Verdict(False, note=f"{case['file']}: 2.0 kernel, no 1.x counterpart")
