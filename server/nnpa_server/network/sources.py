# SPDX-License-Identifier: Apache-2.0
"""The sources of networks: an ONNX file, a program, or a published model."""

import json
from collections.abc import Callable, Iterator
from typing import TypeAlias

from nnpa.network.v1 import network_pb2 as pb
from nnpa_emulator import Guest
from nnpa_network.client_api.errors import ErrorCode, ErrorType, NetworkRefused
from nnpa_network.importing.onnx_import import ImportOptions
from nnpa_network.importing.plan import Plan, ProgramPlan, signature_of
from nnpa_network.placements import DEFAULT_PLACEMENT

from nnpa_server.errors import CallRefused, invalid, unspecified
from nnpa_server.network.messages import read_placement
from nnpa_server.network.programs import parse_program, read_program, refusing_misfits
from nnpa_server.network.uploads import receive_file
from nnpa_server.network.worker_executor import program_loader
from nnpa_server.network.worker_plan import WorkerPlan
from nnpa_server.network.workers import Workers
from nnpa_server.open_inference.loading import Loader
from nnpa_server.open_inference.repository import Repository
from nnpa_server.sessions.cancellation import CancellationCheck, Context
from nnpa_server.sessions.store import Session
from nnpa_server.sessions.tokens import require_machine

Make: TypeAlias = Callable[[Guest], Plan]
"""A function that compiles a model for a guest; it raises `ModelRefused` and CallRefused."""


class Sources:
    """Reads the sources of networks; without `loader` clients cannot publish models."""

    def __init__(
        self, repository: Repository, loader: Loader | None, shortcuts: frozenset[str]
    ) -> None:
        self._repository, self._loader, self._shortcuts = repository, loader, shortcuts

    def read(
        self,
        header: pb.CreateNetworkHeader,
        session: Session,
        requests: Iterator[pb.CreateNetworkRequest],
        context: Context,
        workers: Workers,
    ) -> tuple[str, Make]:
        """Return a model's signature and a function that compiles it; raise `NetworkRefused`."""
        source = header.WhichOneof("source")
        if source is None:
            raise unspecified("header.source")
        if source == "published":
            plan = self._find(header.published)
            return plan.signature, lambda guest: plan.lent(guest, workers)
        total = header.onnx_bytes if source == "onnx_bytes" else header.program_bytes
        if not total:
            raise invalid(f"header.{source}", 0, "the bytes of the file")
        with session.staged(total):
            data = receive_file(requests, context, total)
        if header.publish_as:
            self._publish(header, source, data, session.trail.machine, context)
        signature = signature_of(data)
        limit = session.limits.max_session_bytes
        if source == "program_bytes":
            load = program_loader(workers, self._shortcuts, limit)

            def make(guest: Guest) -> Plan:
                program = read_program(parse_program(data), guest)
                with refusing_misfits():
                    return ProgramPlan(program, guest, signature, load)

            return signature, make
        chosen = read_import_options(header.options, limit, self._shortcuts)
        return signature, lambda guest: WorkerPlan(data, guest, chosen, workers)

    def _find(self, name: str) -> WorkerPlan:
        """Return the plan of a published model; refuse a machine that the caller may not use."""
        try:
            model = self._repository.find(name)
        except CallRefused as refused:
            text = f"published is {name[:64]!r}: {refused.message}"
            kind, code = ErrorType.INVALID_PARAM, ErrorCode.NETWORK
            raise NetworkRefused(kind, code, text) from refused
        require_machine(model.properties["machine"])
        assert isinstance(model.plan, WorkerPlan)
        return model.plan

    def _publish(
        self,
        header: pb.CreateNetworkHeader,
        source: str,
        data: bytes,
        machine: str,
        context: Context,
    ) -> None:
        """Publish a model under a free name, for the session's machine."""
        name = header.publish_as
        if self._loader is None:
            raise invalid("header.publish_as", repr(name[:64]), "empty: the operator forbids it")
        if source != "onnx_bytes":
            raise invalid("header.publish_as", repr(name[:64]), "empty for a program")
        options = header.options
        flags = {
            "strict": options.strict_placement,
            "offload_integer": options.offload_integer,
            "saturate": options.overflow != pb.OVERFLOW_NINF,
        }
        texts = {key: str(flag).lower() for key, flag in flags.items()}
        texts["machine"] = machine
        if placement := read_placement(options.placement, "options.placement"):
            texts["placement"] = placement
        parameters = {key: {"string_value": text} for key, text in texts.items()}
        config = json.dumps({"parameters": parameters})
        files, check = {"file:1/model.onnx": data}, CancellationCheck(context)
        self._loader.load(name, config, files, new=True, check=check)


def read_import_options(
    options: pb.CreateOptions, limit: int, shortcuts: frozenset[str]
) -> ImportOptions:
    """Return the options of the compiler; `limit` bounds the bytes of initializers and values."""
    if options.overflow not in pb.Overflow.values():
        raise invalid("options.overflow", options.overflow, "a number of Overflow")
    return ImportOptions(
        strict=options.strict_placement,
        saturate=options.overflow != pb.OVERFLOW_NINF,
        offload_integer=options.offload_integer,
        placement=read_placement(options.placement, "options.placement") or DEFAULT_PLACEMENT,
        max_bytes=limit,
        shortcuts=shortcuts,
    )
