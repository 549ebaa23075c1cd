# SPDX-License-Identifier: Apache-2.0
"""`nnpa conformance diff`, on answers written by hand."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from nnpa_tools.cli import main

Json = dict[str, Any]


def answer(memory: str, status: int = 0, **more: Any) -> Json:
    """Return one answer: a DLFLOAT16 output."""
    output = {"is_transformed": True, "buffer_size": 4096, "memory": memory}
    step = {"status": status, "outputs": {"output": output}, **more}
    return {"file": "add", "name": "sum", "steps": [step]}


def written(path: Path, *answers: Json) -> Path:
    """Write answers as lines."""
    path.write_text("".join(json.dumps(line) + "\n" for line in answers))
    return path


def diff(folder: Path, ours: list[Json], theirs: list[Json], *flags: str) -> Result:
    """Run the command on two files."""
    paths = written(folder / "ours.jsonl", *ours), written(folder / "theirs.jsonl", *theirs)
    return CliRunner().invoke(main, ["conformance", "diff", *map(str, paths), *flags])


def report(folder: Path, ours: Json, theirs: Json) -> Json:
    """Return the only report that the command prints as JSON; check its exit code."""
    ended = diff(folder, [ours], [theirs], "--json")
    reports: list[Json] = json.loads(ended.output)
    assert len(reports) == 1
    assert ended.exit_code == (0 if reports[0]["equal"] else 1)
    return reports[0]


def test_equal_answers_end_with_0(tmp_path: Path) -> None:
    """The same bits, however their repetitions are written, are equal."""
    compared = report(tmp_path, answer("3E00*3 0000"), answer("3E00 3E00*2 0000*1"))
    assert compared["equal"]
    assert (compared["cases"], compared["elements"], compared["worst"]) == (1, 4, 0)
    assert compared["ulps"]["0"] == 4


def test_units_of_the_last_place(tmp_path: Path) -> None:
    """Distances go across zero, into buckets, and the first differing element is named."""
    ours, theirs = answer("3E00 0001 3E00 4000 3E00"), answer("3E00 8001 3E03 4010 3F00")
    compared = report(tmp_path, ours, theirs)
    assert not compared["equal"]
    assert compared["ulps"] == {
        "0": 1, "1": 0, "2": 1, "3-4": 1, "5-16": 1, ">16": 1, "not a number": 0
    }  # fmt: skip
    assert compared["worst"] == 0x100
    assert compared["first"] == {
        "vector": "sum", "place": "step 0 output[1]", "ours": "0001", "theirs": "8001"
    }  # fmt: skip


def test_zeros_of_either_sign_are_different_bits(tmp_path: Path) -> None:
    """-0 is 0 units from +0, but the elements differ."""
    compared = report(tmp_path, answer("0000"), answer("8000"))
    assert (compared["worst"], compared["ulps"]["0"], compared["equal"]) == (0, 1, False)


def test_ninf_has_no_distance(tmp_path: Path) -> None:
    """NINF against a number is counted apart, and does not change the largest distance."""
    compared = report(tmp_path, answer("7FFF 3E00"), answer("7FFE 3E01"))
    assert (compared["ulps"]["not a number"], compared["worst"]) == (1, 1)


def test_integers_are_compared_as_integers(tmp_path: Path) -> None:
    """Cells of one and four bytes are two's complement: FF is 1 from 00."""
    assert report(tmp_path, answer("FF"), answer("00"))["worst"] == 1
    assert report(tmp_path, answer("FFFFFFFE"), answer("00000001"))["worst"] == 3


def test_arrays_of_the_user_are_floats(tmp_path: Path) -> None:
    """`data_out` of eight digits is FP32, of four FP16 or bfloat16."""
    ours, theirs = answer("3E00", data_out="3F800000"), answer("3E00", data_out="3F800002")
    assert report(tmp_path, ours, theirs)["worst"] == 2
    ours, theirs = answer("3E00", data_out="7FFF"), answer("3E00", data_out="7FFE")
    assert report(tmp_path, ours, theirs)["worst"] == 1


def test_different_statuses_are_differences(tmp_path: Path) -> None:
    """A different status, or an error instead of a status, is a status difference."""
    compared = report(tmp_path, answer("3E00"), answer("3E00", 0x00040001))
    assert [difference["theirs"] for difference in compared["statuses"]] == ["0x00040001"]
    assert compared["first"] is None
    ours: Json = {"file": "add", "name": "sum", "steps": [{"error": "PROGRAM_CHECK"}]}
    compared = report(tmp_path, ours, answer("3E00"))
    assert [difference["ours"] for difference in compared["statuses"]] == ["PROGRAM_CHECK"]


@pytest.mark.parametrize(("key", "value"), [("fp_flags", ["OVERFLOW"]), ("value", 3)])
def test_flags_and_values_are_compared(tmp_path: Path, key: str, value: Any) -> None:
    """A difference in flags or in a value is reported with its place."""
    compared = report(tmp_path, answer("3E00"), answer("3E00", **{key: value}))
    assert [difference["place"] for difference in compared["others"]] == [f"step 0 {key}"]


def test_texts_of_the_same_number_are_equal(tmp_path: Path) -> None:
    """A scale is FP32 however many digits it has; a descriptor's field left out is 0."""
    ours, theirs = answer("3E00"), answer("3E00")
    ours["steps"][0]["outputs"]["output"]["rec_scale"] = 0.042500000447034836
    theirs["steps"][0]["outputs"]["output"]["rec_scale"] = 0.0425000004
    assert report(tmp_path, ours, theirs)["equal"]
    theirs["steps"][0]["outputs"]["output"]["rec_scale"] = 0.0425000041
    assert len(report(tmp_path, ours, theirs)["others"]) == 1
    local: Json = {"local": "generate_transformed_desc", "name": "2d"}
    ours, theirs = {**local, "result": {"dim1": 5}}, {**local, "result": {"dim1": 5, "dim4": 0}}
    assert report(tmp_path, ours, theirs)["equal"]


def test_sizes_and_states_are_compared(tmp_path: Path) -> None:
    """A different or missing buffer, and a different state, are differences."""
    assert len(report(tmp_path, answer("3E00"), answer("3E00*2"))["others"]) == 1
    theirs = answer("3E00")
    del theirs["steps"][0]["outputs"]["output"]["memory"]
    theirs["steps"][0]["outputs"]["output"]["is_transformed"] = False
    assert len(report(tmp_path, answer("3E00"), theirs)["others"]) == 2


def test_skipped_and_missing_vectors_are_counted(tmp_path: Path) -> None:
    """A vector with an answer on one side only is counted as not compared."""
    skipped = {"file": "add", "name": "other", "skipped": "machine: not the one here"}
    mine = {"file": "add", "name": "other", "steps": [{"status": 0}]}
    extra = {"local": "get_max_limit", "name": "x", "result": "7BFF"}
    ended = diff(tmp_path, [answer("3E00"), mine, extra], [answer("3E00"), skipped], "--json")
    by_function = {row["function"]: row for row in json.loads(ended.output)}
    assert (by_function["add"]["cases"], by_function["add"]["not_compared"]) == (1, 1)
    assert by_function["get_max_limit"]["not_compared"] == 1
    assert ended.exit_code == 0


def test_the_table_names_function_and_first_difference(tmp_path: Path) -> None:
    """The table gives the function, its numbers, and the place of the first difference."""
    ended = diff(tmp_path, [answer("3E00 4000")], [answer("3E00 4001", 0x00020001)])
    assert ended.exit_code == 1
    assert "add/sum step 0 output[1] bits: ours 4000, theirs 4001" in ended.output
    assert "add/sum step 0 status: ours 0x00000000, theirs 0x00020001" in ended.output


@pytest.mark.parametrize(
    ("text", "story"),
    [
        ("{", "theirs.jsonl, line 1: no JSON"),
        ("[]", "theirs.jsonl, line 1: no answer"),
        ('{"name": "sum"}', "`file` is missing"),
        ('{"file": "add", "name": "other", "steps": []}', "no answered vector in common"),
        ('{"file": "add", "name": "a"}\n{"file": "add", "name": "a"}', "answered twice"),
        ('{"file": "add", "name": "sum", "steps": [{"data_out": "3E 3E00"}]}', "digits"),
    ],
)
def test_answers_that_cannot_be_compared_end_with_2(tmp_path: Path, text: str, story: str) -> None:
    """A file without answers, or without answers in common, is a usage error."""
    ours = written(tmp_path / "ours.jsonl", {**answer("3E00"), "steps": [{"data_out": "3E00"}]})
    theirs = tmp_path / "theirs.jsonl"
    theirs.write_text(text)
    ended = CliRunner().invoke(main, ["conformance", "diff", str(ours), str(theirs)])
    assert ended.exit_code == 2
    assert story in ended.output
