# SPDX-License-Identifier: Apache-2.0
"""A repeated list is not read a second time, and gets the same answers as a new list."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from grpc import StatusCode
from nnpa.zdnn.v1 import accelerator_pb2 as pb
from nnpa_emulator import Guest, Outcome, Status, run

from tests.server.wire import Client, New, Operation, init, load, op, refused

ONES = np.ones((2, 3), np.float32)
LIST = (
    op("add", input_a=1, input_b=2, output=3),
    op("relu", input=3, output=4, clipping_value=1.5),
    op("mul", input_a=3, input_b=3, output=3),
)


@pytest.fixture
def loaded(client: Client) -> Client:
    """Return a session whose tensors 1 and 2 are ones, 3 and 4 are for results."""
    client.run(*load(1, ONES), *load(2, ONES), *init(3, 2, 3), *init(4, 2, 3))
    return client


def statuses(client: Client, *operations: Operation) -> list[int]:
    """Run a list and return its statuses."""
    return [result.zdnn_status for result in client.run(*operations)]


def fill(client: Client, tensor_id: int, values: npt.NDArray[np.float32]) -> None:
    """Give a tensor other contents."""
    data = [values.astype(np.float32).tobytes()]
    client.run(
        op("reset_ztensor", ztensor=tensor_id),
        op("transform_ztensor", ztensor=tensor_id, data=data),
    )


def test_answers_and_values_stay(loaded: Client) -> None:
    """A list gives the same answers and values each time."""
    answers = [loaded.run(*LIST) for _ in range(4)]
    assert all(answer == answers[0] for answer in answers)
    assert np.array_equal(loaded.array(3), np.full(6, 4, np.float32))
    assert np.array_equal(loaded.array(4), np.full(6, 1.5, np.float32))


@pytest.mark.shortcut
def test_checks_are_made_once(loaded: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checks of a list run when it comes first, and not when it is repeated."""
    called: list[str] = []

    def counted(guest: Guest, name: str, *arguments: Any) -> Outcome:
        called.append(name)
        return run(guest, name, *arguments)

    monkeypatch.setattr("nnpa_server.accelerator.execute.run_function", counted)
    for _ in range(4):
        loaded.run(*LIST)
        assert len(called) == 3


def test_changed_values_are_read(loaded: Client) -> None:
    """The server remembers a list without the values of its tensors."""
    for number in range(1, 5):
        fill(loaded, 1, number * ONES)
        loaded.run(LIST[0])
        assert np.array_equal(loaded.array(3), np.full(6, number + 1, np.float32))


def test_tensor_is_replaced(loaded: Client) -> None:
    """A list is refused once an id of it names a tensor of another shape."""
    for _ in range(3):
        assert statuses(loaded, *LIST) == [0, 0, 0]
    loaded.run(op("free_ztensor_buffer", ztensor=2), *load(2, np.ones((3, 3), np.float32)))
    loaded.stub.UpdateSession(pb.UpdateSessionRequest(session=prechecking(loaded)))
    assert statuses(loaded, *LIST) == [Status.ZDNN_INVALID_SHAPE]


def test_a_freed_tensor_is_not_found(loaded: Client) -> None:
    """A remembered list is refused once a tensor of it is freed."""
    for _ in range(3):
        loaded.run(*LIST)
    loaded.run(op("free_ztensor_buffer", ztensor=2))
    with refused(StatusCode.NOT_FOUND, "TENSOR_NOT_FOUND", operation_index=0):
        loaded.run(*LIST)


def test_violation_in_a_list_that_came_before(loaded: Client) -> None:
    """A value out of range is reported and explained as in a new list."""
    for _ in range(3):
        loaded.run(LIST[0])
    for tensor_id in (1, 2):
        fill(loaded, tensor_id, 8e9 * ONES)
    repeated = loaded.run(LIST[0])
    first = loaded.run(op("add", input_a=1, input_b=2, output=4))
    assert repeated[0].zdnn_status == Status.ZDNN_ELEMENT_RANGE_VIOLATION
    assert repeated[0].range_violation == first[0].range_violation
    assert repeated[0].diagnostics == first[0].diagnostics


def prechecking(client: Client) -> pb.Session:
    """Return the update that has the library check first."""
    return pb.Session(name=client.session, precheck=True)


def older(client: Client) -> pb.Session:
    """Return the update that moves the program to a Telum without the function."""
    return pb.Session(
        name=client.session,
        machine_spec=pb.MachineSpec(model=pb.MACHINE_MODEL_TELUM1_NONNPA),
    )


@pytest.mark.parametrize(("update", "status"), [
    (prechecking, Status.ZDNN_OK), (older, Status.ZDNN_UNAVAILABLE_FUNCTION),
])  # fmt: skip
def test_session_changes(
    loaded: Client, update: Callable[[Client], pb.Session], status: Status
) -> None:
    """Machine and options count as they are when the list comes."""
    for _ in range(3):
        loaded.run(*LIST)
    loaded.stub.UpdateSession(pb.UpdateSessionRequest(session=update(loaded)))
    fresh = loaded.run(op("add", input_a=2, input_b=1, output=4))
    repeated = loaded.run(*LIST)
    assert repeated[0].zdnn_status == fresh[0].zdnn_status
    assert repeated[0].zdnn_status == status


def test_new_outputs_come_once(loaded: Client) -> None:
    """A list that creates tensors cannot be repeated: their ids are in use."""
    create = op("add", input_a=1, input_b=2, output=New(9))
    loaded.run(create)
    with refused(StatusCode.ALREADY_EXISTS, "TENSOR_ID_IN_USE"):
        loaded.run(create)


def test_more_lists_than_a_session_remembers(loaded: Client) -> None:
    """Each of more lists than a session remembers gives its own answer, twice."""
    for _ in range(2):
        for bound in range(1, 100):
            relus = [op("relu", input=1, output=4, clipping_value=bound / 128)] * 50
            assert statuses(loaded, *relus) == [0] * 50
            assert np.array_equal(loaded.array(4), np.full(6, bound / 128, np.float32))
