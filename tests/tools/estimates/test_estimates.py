# SPDX-License-Identifier: Apache-2.0
"""Estimates of the machine's time: laws of the intervals, and published points inside them."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nnpa.zdnn.v1 import operation_pb2
from nnpa.zdnn.v1.tensor_pb2 import TensorRef
from nnpa_client._values.availability import Answer, find_host, verdict
from nnpa_client.trace import COMPUTING
from nnpa_tools.estimates.coefficients import estimated_machine, machines, shipped
from nnpa_tools.estimates.dominance import dominant
from nnpa_tools.estimates.estimator import estimate, is_small, time_of
from nnpa_tools.estimates.graphs import (
    decoder,
    elementwise,
    fraud_detection,
    product,
    transform,
)
from nnpa_tools.estimates.intervals import Interval
from nnpa_tools.estimates.published import (
    Point,
    is_kept,
    ledger,
    median_widths,
    published_points,
    steeper,
    unnoticed_rows,
)
from nnpa_tools.estimates.work import Call, Dims, parts

# Source of the peaks: ISCA 2022 and Hot Chips 2024, over 6 and 24 tera-operations a second; of the
# second, half for 16 bits is an assumption that this law survives with room.
PEAK_MACS_PER_NS = {"telum1": 3_000.0, "telum2": 6_000.0}
MEASURED = ("add", "sub", "mul", "div", "max", "min", "exp", "log", "relu", "sigmoid", "tanh")
LARGE: Dims = (32, 1, 64, 64)
SIZES = st.tuples(*[st.integers(1, 300)] * 4)
# Measured twice on z17; on z16 products, by the vendor's own figure for recurrent layers.
HELD = [("telum1", "matmul_op")] + [
    ("telum2", function)
    for function in (*MEASURED, "gelu", "softmax", "meanreduce2d", "matmul_op", "matmul_bcast_op",
                     "transform_ztensor")
]  # fmt: skip


def interval_of(call: Call, machine: str) -> Interval:
    """Return the interval of a call that has one."""
    interval = time_of(call, machine)
    assert interval is not None
    return interval


def arguments(function: str) -> dict[str, Dims]:
    """Return a page for every tensor of a function, by C parameter name."""
    (arm,) = (arm for arm in operation_pb2.Operation.DESCRIPTOR.fields if arm.name == function)
    assert arm.message_type is not None
    return {
        field.name: (1, 1, 32, 64)
        for field in arm.message_type.fields
        if field.message_type is not None and field.message_type.name == TensorRef.DESCRIPTOR.name
    }


@pytest.mark.parametrize("point", published_points(), ids=lambda point: point.what)
def test_published_points_lie_inside(point: Point) -> None:
    """The published time of a known shape lies in the interval that is printed for it."""
    (entry,) = (entry for entry in ledger() if entry.point is point)
    assert entry.verdict == ("not tested" if point.untested else "inside"), entry


def test_points_of_unknown_shape_are_not_tested() -> None:
    """A point whose batch was not published has no estimate, and says why it is not tested."""
    unknown = [entry for entry in ledger() if entry.point.batch is None]
    assert len(unknown) == 2
    for entry in unknown:
        assert entry.point.untested
        assert (entry.predicted, entry.ratio, entry.verdict) == (None, None, "not tested")
    assert sum(not entry.point.untested for entry in ledger()) == 37


@pytest.mark.parametrize(("machine", "function"), HELD)
def test_the_ledger_notices_a_wrong_slope(machine: str, function: str) -> None:
    """A slope that is seeded four times as steep fails the ledger."""
    assert is_kept(ledger(steeper(shipped(), machine, function, 1.0)))
    assert not is_kept(ledger(steeper(shipped(), machine, function, 4.0)))


def test_the_ledger_says_what_no_point_holds() -> None:
    """The ledger lists exactly the measured rows whose slopes no tested point checks."""
    rows = {f"{machine} {name}" for machine in machines()
            for name, row in shipped().rows[machine].items() if row.r2 is not None}  # fmt: skip
    assert set(unnoticed_rows(shipped())) == rows - {" ".join(row) for row in HELD}


def test_median_width_follows_from_the_grade() -> None:
    """The median of most over least is k squared where all parts have one grade."""
    widths = median_widths(ledger())
    for grade in "ABC":
        assert widths[grade] == pytest.approx(shipped().grades[grade].k ** 2)
    assert widths["C"] < widths["D"] <= shipped().grades["D"].k ** 2


def test_data_have_sources_and_reasons() -> None:
    """Every row has a source, a measured row its fit, and worse grades are wider."""
    of = shipped()
    ks = [of.grades[letter].k for letter in "ABCD"]
    assert ks == sorted(ks)
    assert ks[0] > 1
    for rows in of.rows.values():
        assert set(of.families.values()) <= set(rows)
        for row in rows.values():
            assert of.sources[row.source]
            assert (row.r2 is None) == bool(row.like) == bool(row.why)
            assert row.grade != "A" or (row.r2 or 0) >= 0.97
    assert all(grade.reason and grade.means for grade in of.grades.values())


@pytest.mark.parametrize("machine", ["telum1", "telum2"])
@pytest.mark.parametrize("function", sorted(COMPUTING))
def test_every_function_has_an_estimate(function: str, machine: str) -> None:
    """Each function of a machine has an estimate, and a missing function is named as missing."""
    call = Call(function, arguments(function), window=4)
    is_absent = verdict(function, find_host(machine)).answer is Answer.NO
    assert (time_of(call, machine) is None) == is_absent
    missing = estimate([call], machine).missing
    expected = {f"{function}: not on {find_host(machine).title}": 1} if is_absent else {}
    assert missing == expected


def test_calls_without_shapes_are_said_to_be_missing() -> None:
    """A call whose tensors are not known has no estimate; one that computes nothing needs none."""
    calls = [Call("add"), Call("reshape_ztensor"), Call("init_ztensor"), Call("transform_ztensor")]
    of = estimate([*calls, Call("NNPA_LSTMACT"), Call("NNPA_QAF")], "telum2")
    assert of.lines == ()
    assert of.missing == {
        "add: its shapes are not known": 1,
        "reshape_ztensor: no figure is public": 1,
        "transform_ztensor: its shapes are not known": 1,
        "NNPA_LSTMACT: no figure is public": 1,
    }
    assert dominant(of) == ""


@given(SIZES, st.integers(0, 3), st.integers(1, 200), st.sampled_from(sorted(MEASURED)),
       st.sampled_from(["telum1", "telum2"]))  # fmt: skip
def test_intervals_grow_with_sizes(
    sizes: Dims, axis: int, more: int, function: str, machine: str
) -> None:
    """A larger tensor takes no less time: in the middle always, at both ends within a grade."""
    larger = list(sizes)
    larger[axis] += more
    grown: Dims = (larger[0], larger[1], larger[2], larger[3])
    for before, after in (
        (elementwise(function, sizes), elementwise(function, grown)),
        (product("matmul_op", *sizes), product("matmul_op", *grown)),
        (
            transform("transform_ztensor", sizes, False),
            transform("transform_ztensor", grown, False),
        ),
    ):
        small, large = interval_of(before, machine), interval_of(after, machine)
        assert small.middle_ns <= large.middle_ns * (1 + 1e-9)
        if small.grade == large.grade:
            assert small.low_ns <= large.low_ns * (1 + 1e-9)
            assert small.high_ns <= large.high_ns * (1 + 1e-9)


@given(SIZES, st.sampled_from(["telum1", "telum2"]))
def test_no_interval_is_faster_than_the_chip(sizes: Dims, machine: str) -> None:
    """The least time of a product is above what the published peak would take."""
    call = product("matmul_op", *sizes)
    macs = sizes[0] * sizes[1] * sizes[2] * sizes[3]
    assert interval_of(call, machine).low_ns > macs / PEAK_MACS_PER_NS[machine]


@pytest.mark.parametrize("function", [*MEASURED, "meanreduce2d", "matmul_op", "matmul_bcast_op"])
def test_z17_is_not_slower_by_the_data(function: str) -> None:
    """At a large shape every function of both machines takes no longer on z17, but softmax."""
    if function.startswith("matmul"):
        call = product(function, 4, 64, 128, 128)
    else:
        call = elementwise(function, LARGE)
    assert interval_of(call, "telum2").high_ns <= interval_of(call, "telum1").high_ns
    assert interval_of(call, "telum2").low_ns <= interval_of(call, "telum1").low_ns


def test_softmax_is_slower_on_z17_by_the_data() -> None:
    """The one function whose published line is steeper on z17 is estimated so."""
    call = elementwise("softmax", LARGE)
    assert interval_of(call, "telum2").low_ns > interval_of(call, "telum1").low_ns


def test_a_layer_of_lstm_is_two_calls_for_each_step_and_one() -> None:
    """An LSTM counts zDNN's own calls: T products, T activations, and one product of all inputs."""
    lstm = next(call for call in fraud_detection(128, 7) if call.function == "lstm")
    counted = parts(lstm)
    assert [part.calls for part in counted] == [1, 7, 7]
    # 896 rows of 220 inputs, which fill 256, by four gates of 256; then 128 rows of 200.
    assert [part.padded for part in counted] == [896 * 256 * 1024, 128 * 256 * 1024, 128 * 1024]
    both = parts(replace(lstm, tensors={**lstm.tensors, "h0": (2, 1, 128, 200)}))
    assert [part.calls for part in both] == [2, 14, 14]


def test_a_convolution_is_a_product_over_its_windows() -> None:
    """Its multiply-accumulates count channels by sticks of 64, and rows as they are."""
    call = Call("conv2d", {"input": (1, 8, 8, 3), "kernel": (3, 3, 3, 65), "output": (1, 6, 6, 65)})
    (part,) = parts(call)
    assert (part.useful, part.least, part.most) == (36 * 9 * 3 * 65, *[36 * 9 * 64 * 128] * 2)


@pytest.mark.parametrize(
    ("call", "grade"),
    [
        (elementwise("add", (1, 1, 32, 64)), "A"),
        (elementwise("add", (1, 1, 32, 1)), "A"),
        (elementwise("add", (1, 1, 31, 64)), "A"),
        (elementwise("add", (1, 1, 30, 64)), "D"),
        (elementwise("add", (1000, 1, 32, 64)), "C"),
        (elementwise("softmax", (1, 1, 32, 64)), "C"),
        (elementwise("softmax", (1000, 1, 32, 64)), "D"),
        (product("matmul_op", 1, 32, 64, 64), "B"),
        (product("matmul_op", 1, 1, 64, 64), "D"),
        (product("matmul_op", 1, 512, 512, 512), "D"),
        (elementwise("sqrt", (1, 1, 32, 64)), "D"),
        (transform("transform_ztensor", (1, 1, 32, 64), False), "C"),
        (transform("transform_ztensor", (1, 1, 7, 64), True), "B"),
        (replace(transform("transform_ztensor", (1, 1, 32, 64), True), is_float32=False), "D"),
    ],
)  # fmt: skip
def test_grades_say_what_was_measured(call: Call, grade: str) -> None:
    """A shape that the sources did not measure has a worse grade than their function."""
    assert interval_of(call, "telum2").grade == grade


def test_the_compiler_stickifies_by_its_own_code() -> None:
    """The same transform is another row where the compiler's code does it."""
    ours, zdnn = (
        transform("transform_ztensor", LARGE, compiled=compiled) for compiled in (True, False)
    )
    assert (ours.label, zdnn.label) == ("stickify", "transform_ztensor")
    for machine in machines():
        assert interval_of(ours, machine).middle_ns < interval_of(zdnn, machine).middle_ns


def test_an_estimate_adds_up() -> None:
    """The whole is the sum of its lines, with the worst of their grades, the longest first."""
    of = estimate(decoder(1, 32), "telum2")
    assert of.total.high_ns == pytest.approx(sum(line.interval.high_ns for line in of.lines))
    assert of.total.low_ns == pytest.approx(sum(line.interval.low_ns for line in of.lines))
    assert of.total.grade == max(line.interval.grade for line in of.lines)
    highs = [line.interval.high_ns for line in of.lines]
    assert highs == sorted(highs, reverse=True)
    assert {line.function: line.count for line in of.lines} == {
        "matmul_op": 281, "transform_ztensor": 281, "transform_origtensor": 281,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("calls", "sentence"),
    [
        ([transform("transform_ztensor", LARGE, False)], "Transforms between arrays and sticks"),
        ([elementwise("add", (1, 1, 1, 1))] * 3, "3 calls below the break-even with the CPU"),
        ([elementwise("exp", (1, 1, 1, 1))], "Fixed costs of calls"),
        ([elementwise("exp", (64, 1, 32, 1))], "Padding takes about 72% of it"),
        ([elementwise("exp", (60, 4, 64, 64))], "exp takes about 100% of it, by its arithmetic"),
    ],
)  # fmt: skip
def test_what_dominates_is_a_sentence(calls: list[Call], sentence: str) -> None:
    """The cause with the largest share is named with what would change it."""
    assert dominant(estimate(calls, "telum1")).startswith(sentence)


def test_break_even_is_where_two_lines_cross() -> None:
    """Sums of z16 pay from 43,000 elements on, by two lines; of exp no CPU is public."""
    assert is_small(elementwise("add", (20, 1, 32, 64)), "telum1")
    assert not is_small(elementwise("add", (22, 1, 32, 64)), "telum1")
    assert not is_small(elementwise("exp", (1, 1, 1, 1)), "telum1")
    assert not is_small(transform("transform_ztensor", (1, 1, 1, 1), False), "telum1")


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (0.0, 990.0, "0 to 0.99 us"),
        (1234.0, 5678.0, "1.2 to 5.7 us"),
        (99_400.0, 1_001_000.0, "0.099 to 1.1 ms"),
        (123_456_789.0, 999_000_000.0, "120 to 1,000 ms"),
        (2.0e9, 3.01e9, "2.0 to 3.1 s"),
    ],
)
def test_intervals_print_two_digits_outward(low: float, high: float, text: str) -> None:
    """The printed interval holds the computed one, with two digits."""
    assert str(Interval(low, high)) == text


def test_published_times_print_three_digits() -> None:
    """A published time is printed as such: once where it is one number."""
    assert Interval(1_100_000, 1_180_000).as_published == "1.10 to 1.18 ms"
    assert Interval(6712.4, 6712.4).as_published == "6.71 us"


def test_json_has_no_single_number() -> None:
    """Plain data have both ends and the grade, under a name that no measured time has."""
    data = interval_of(elementwise("add", LARGE), "telum1").as_data()
    assert json.loads(json.dumps(data)) == {
        "estimated_machine_ns": {"low": 9848, "high": 15388},
        "grade": "A",
    }


@pytest.mark.parametrize("name", ["z15", "telum2-nonnpa", "z18"])
def test_machines_without_a_zaiu_are_refused(name: str) -> None:
    """An unknown machine, or one without a zAIU, is refused with the list of the others."""
    with pytest.raises(
        ValueError, match=r"machine: .*expected one of telum1 \(z16\), telum2 \(z17\)"
    ):
        estimated_machine(name)
    assert estimated_machine("Z16").name == "telum1"
