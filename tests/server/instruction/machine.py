# SPDX-License-Identifier: Apache-2.0
"""A server on a Unix socket that takes memory, for tests of instruction frames."""

from dataclasses import replace
from pathlib import Path

import grpc
from nnpa.zdnn.v1 import accelerator_pb2 as pb
from nnpa_server.app import Server

from tests.server.conftest import CONFIG, OPTIONS
from tests.server.instruction.instructions import (
    ONE,
    PAGE,
    TWO,
    Program,
    memory_file,
    sticks,
)
from tests.server.wire import Client

EMPTY = 0xABCD  # what lies in the storage of an output before


class Machine:
    """A server on a Unix socket that takes memory, with a session."""

    def __init__(self, folder: Path, shared_memory: bool = True) -> None:
        address = f"unix:{folder}/nnpa.sock"
        self.server = Server(
            replace(CONFIG, listen=(address,), shared_memory=shared_memory, metrics="127.0.0.1:0")
        )
        self.server.start()
        self.channel = grpc.insecure_channel(address, OPTIONS)
        self.client = Client(self.channel)
        self.path = folder / "nnpa.sock.plain"

    def program(self, session: str = "") -> Program:
        """Open a connection with four pages of memory: one and two, twice, and no output yet."""
        program = Program(self.path, session or self.client.session, memory_file(4 * PAGE))
        program.put(0, sticks(ONE, TWO))
        program.put(PAGE, sticks(ONE, TWO))
        program.put(2 * PAGE, sticks(EMPTY, EMPTY))
        program.put(3 * PAGE, sticks(EMPTY, EMPTY))
        return program

    def on(self, model: "pb.MachineModel.ValueType") -> str:
        """Return a session on another machine."""
        options = pb.Session(machine_spec=pb.MachineSpec(model=model))
        return self.client.open_session(options).session

    def stop(self) -> None:
        """End all of it."""
        self.channel.close()
        self.server.drain()
