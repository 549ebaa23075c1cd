# SPDX-License-Identifier: Apache-2.0
"""Bad options, names and pages of sessions: a documented error, and no session."""

from collections.abc import Callable

import pytest
from nnpa.zdnn.v1 import accelerator_pb2 as pb

from tests.server.test_bad_input import CODE
from tests.server.wire import (
    Client,
    number,
    refused,
)


def test_unknown_session_in_every_method(client: Client) -> None:
    """A name that is no session's is SESSION_NOT_FOUND wherever it is used."""
    name, stub = "sessions/guessed", client.stub
    calls: list[Callable[[], object]] = [
        lambda: stub.GetSession(pb.GetSessionRequest(name=name)),
        lambda: stub.DeleteSession(pb.DeleteSessionRequest(name=name)),
        lambda: next(stub.HoldSession(pb.HoldSessionRequest(name=name))),
        lambda: stub.UpdateSession(pb.UpdateSessionRequest(session=pb.Session(name=name))),
        lambda: stub.Execute(pb.ExecuteRequest(session=name)),
        lambda: list(stub.ExecuteStream(iter([pb.ExecuteRequest(session=name)]))),
        lambda: stub.ListTensors(pb.ListTensorsRequest(session=name)),
        lambda: list(stub.ReadTensor(pb.ReadTensorRequest(session=name, sticks=pb.ReadSticks()))),
        lambda: stub.WriteTensor(iter([pb.WriteTensorRequest(header=pb.WriteTensorHeader(
            session=name, sticks=pb.WriteSticks(id=1)))])),
    ]  # fmt: skip
    for call in calls:
        with refused(CODE.NOT_FOUND, "SESSION_NOT_FOUND", session=name):
            call()


@pytest.mark.parametrize(
    ("options", "reason", "field"),
    [
        (pb.Session(library_version="0.9.9"), "LIBRARY_VERSION_UNKNOWN", "session.library_version"),
        (pb.Session(machine_spec=pb.MachineSpec(model=number(99))), "MACHINE_INVALID",
         "session.machine_spec.model"),
        (pb.Session(machine_spec=pb.MachineSpec(max_tensor_size=5)), "MACHINE_INVALID",
         "session.machine_spec.max_tensor_size"),
        (pb.Session(machine_spec=pb.MachineSpec(max_dim1=2**31)), "MACHINE_INVALID",
         "session.machine_spec.max_dim1"),
        (pb.Session(machine_spec=pb.MachineSpec(data_types_mask=1)), "MACHINE_INVALID",
         "session.machine_spec.data_types_mask"),
        (pb.Session(machine_spec=pb.MachineSpec(removed_functions=[number(0)])), "MACHINE_INVALID",
         "session.machine_spec.removed_functions"),
        (pb.Session(program_check_action=number(9)), "FIELD_INVALID",
         "session.program_check_action"),
        (pb.Session(numerics=number(9)), "FIELD_INVALID", "session.numerics"),
        (pb.Session(log_level=number(-1)), "FIELD_INVALID", "session.log_level"),
        (pb.Session(accumulate=number(3)), "FIELD_INVALID", "session.accumulate"),
        (pb.Session(log_module="x" * 1024), "FIELD_INVALID", "session.log_module"),
    ],
)  # fmt: skip
def test_bad_options_make_no_session(
    client: Client, options: pb.Session, reason: str, field: str
) -> None:
    """Unknown numbers of our own enums and impossible machines are refused, by field."""
    with refused(CODE.INVALID_ARGUMENT, reason, field=field):
        client.open_session(options)
    request = pb.UpdateSessionRequest(session=options)
    request.session.name = client.session
    if reason != "LIBRARY_VERSION_UNKNOWN":
        with refused(CODE.INVALID_ARGUMENT, reason, field=field):
            client.stub.UpdateSession(request)


@pytest.mark.parametrize("token", ["x", "1.", "1.0123456789abcdef", "-1.00", "9" * 100])
def test_foreign_page_tokens(client: Client, token: str) -> None:
    """A page token is refused if the listing did not return it, also if another listing did."""
    with refused(CODE.INVALID_ARGUMENT, "PAGE_TOKEN_INVALID"):
        client.stub.ListMachines(pb.ListMachinesRequest(page_token=token))
    with refused(CODE.INVALID_ARGUMENT, "PAGE_TOKEN_INVALID"):
        client.stub.ListTensors(pb.ListTensorsRequest(session=client.session, page_token=token))
    machines = client.stub.ListMachines(pb.ListMachinesRequest(page_size=1))
    with refused(CODE.INVALID_ARGUMENT, "PAGE_TOKEN_INVALID"):
        client.stub.ListTensors(
            pb.ListTensorsRequest(session=client.session, page_token=machines.next_page_token)
        )


def test_unknown_machine(client: Client) -> None:
    """An unknown machine is refused, and the error lists the known names."""
    for name in ("machines/z14", "telum1", ""):
        with refused(CODE.NOT_FOUND, "MACHINE_NOT_FOUND", value=name):
            client.stub.GetMachine(pb.GetMachineRequest(name=name))


def test_negative_page_size(client: Client) -> None:
    """A negative page size is refused."""
    with refused(CODE.INVALID_ARGUMENT, "FIELD_INVALID", field="page_size", value=-1):
        client.stub.ListMachines(pb.ListMachinesRequest(page_size=-1))
