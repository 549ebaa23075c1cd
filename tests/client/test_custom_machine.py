# SPDX-License-Identifier: Apache-2.0
"""A machine as text: a name, JSON of a custom machine, or a file of such JSON."""

import json
from pathlib import Path

import pytest
from nnpa.zdnn.v1.operation_pb2 import NNPA_LOG, NNPA_SUB
from nnpa_client import MachineSpec, trace
from nnpa_client.custom_machine import machine_text, read_machine

from tests.client.conftest import Open

LIMITS = {"base": "z16", "max_dim1": 64, "max_tensor_size": 8192, "removed_functions": ["NNPA_SUB"]}


def test_json_opens_a_session(open_session: Open) -> None:
    """The session is on the base's model, with the limits and without the functions."""
    session = open_session(json.dumps(LIMITS))
    assert session.machine.nnpa_installed
    assert session.machine.max_dim1 == 64
    assert session.machine.max_tensor_size == 8192
    assert session.machine.model == open_session("telum1").machine.model
    assert NNPA_SUB not in session.machine.functions
    assert NNPA_LOG in session.machine.functions


@pytest.mark.parametrize("name", ["small.json", "small"])
def test_a_file_opens_the_same(
    open_session: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A path has a slash or a dot: a file of the working folder without a dot is ./NAME."""
    (tmp_path / name).write_text(json.dumps(LIMITS))
    monkeypatch.chdir(tmp_path)
    for text in (str(tmp_path / name), f"./{name}"):
        assert open_session(text).machine.max_dim1 == 64
    if "." in name:
        assert open_session(name).machine.max_dim1 == 64


def test_an_update_takes_it(open_session: Open) -> None:
    """A session moves to a custom machine by the same text."""
    session = open_session("telum2")
    session.update(machine='{"max_dim_idx_size": 100}')
    assert session.machine.max_dim_idx_size == 100


def test_a_replay_takes_it(open_session: Open, tmp_path: Path) -> None:
    """A trace is replayed on a custom machine, whose limits it meets."""
    session = open_session("telum2")
    with session.trace(tmp_path / "trace.nnpa") as recording:
        session.ztensor([[1.0] * 65])
    found, _again = trace.replay(recording.read(), session.transport, machine='{"max_dim1": 64}')
    assert not found.is_equal


def test_text_of_a_spec_reads_back() -> None:
    """The text that C programs get has every field, and reads as the same machine."""
    spec = MachineSpec(
        max_dim1=64, max_tensor_size=1 << 32, data_types_mask=1, added_functions=[NNPA_LOG]
    )
    base, again = read_machine(machine_text(spec))
    assert (base, again) == ("telum2", spec)
    assert json.loads(machine_text(spec))["max_tensor_size"] == 1 << 32


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "machine: no JSON: "),
        ('{"max_dim7": 1}', "machine: max_dim7: unknown, expected base or max_dim_idx_size, "),
        ('{"model": 1}', "machine: model: unknown, expected base or "),
        ('{"max_dim1": -1}', "machine: max_dim1: -1, expected a number from 0"),
        ('{"max_dim1": "wide"}', "machine: max_dim1: 'wide', expected a number from 0"),
        ('{"base": 16}', "machine: base: 16, expected a machine's name"),
        (
            '{"removed_functions": ["ADD"]}',
            "machine: removed_functions: ['ADD'], expected a list of names",
        ),
        ("./missing", "machine: ./missing: No such file or directory; expected a machine's name"),
        ("/", "machine: /: Is a directory; expected a machine's name"),
    ],
)
def test_errors_name_field_and_value(text: str, words: str) -> None:
    """What cannot be a machine is refused before a server is asked, by field and value."""
    with pytest.raises(ValueError, match=r"^machine: ") as caught:
        read_machine(text)
    assert str(caught.value).startswith(words)


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    """A file of other bytes, and one that is too long, are named."""
    file = tmp_path / "machine"
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match="not UTF-8, expected JSON"):
        read_machine(str(file))
    file.write_bytes(b" " * 70_000)
    with pytest.raises(ValueError, match="more than 65536 characters"):
        read_machine(str(file))
