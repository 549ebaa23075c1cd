# SPDX-License-Identifier: Apache-2.0
"""MliService: each method of nnpa/mli/v1/mli.proto in a few lines.

A kernel's arm has the name of the emulator's function, and its fields are the arguments, with
`in` for the parameter `in_`. No kernel is named here.
"""

import inspect
import re
import threading
from collections.abc import Mapping
from enum import Enum
from typing import TypeVar

from google.protobuf.message import Message
from mli_emulator import (
    KERNELS,
    Accumulator,
    Asserted,
    Conversion,
    DebugLevel,
    Options,
    Outcome,
    RnnCellCfg,
    RnnMode,
    Rounding,
    SubTensorCfg,
    Tensor,
)
from mli_emulator import Refusal as MliRefusal
from nnpa.mli.v1 import mli_pb2 as pb
from nnpa.mli.v1 import mli_pb2_grpc
from nnpa.zdnn.v1 import status_pb2 as wire

from nnpa_server.config import Limits
from nnpa_server.errors import CallRefused, from_exception, invalid, too_many_calls, unspecified
from nnpa_server.mli.messages import Operands, Room, describe, read_operands, require_short
from nnpa_server.rpc.budget import expect_answer
from nnpa_server.sessions.cancellation import Cancellable, CancellationCheck
from nnpa_server.sessions.pagination import make_token, page_size, read_token

MAX_KERNELS = 4096
# What a recurrent cell may compute before the next look at the deadline: some seconds of work, and
# some hundred MiB of sums. Frames, frames times bytes of weights, frames times bytes of bias.
MAX_FRAMES, MAX_WORK, MAX_SUMS = 1 << 14, 1 << 34, 1 << 24
_WRITTEN = ("out", "cell", "cfg.ir_tsr", "dst")
_CONSTRAINT = re.compile(r"^\((\w+_c\d+)\) ((?:.+\n?)(?:(?!\().+\n?)*)", re.MULTILINE)
Choice = TypeVar("Choice", bound=Enum)


class MliService(mli_pb2_grpc.MliServiceServicer):
    """Implements MliService, with at most `calls` calls of RunKernel at a time."""

    def __init__(self, limits: Limits, calls: int) -> None:
        self._limits = limits
        self._calls = calls
        self._free = threading.BoundedSemaphore(calls)

    def RunKernel(self, request: pb.RunKernelRequest, context: Cancellable) -> pb.RunKernelResponse:  # noqa: N802 - the contract's name
        """Run kernels in order."""
        if not self._free.acquire(blocking=False):
            raise too_many_calls("max_mli_calls", self._calls)
        try:
            return _run(request, self._limits, context)
        finally:
            self._free.release()

    def ListKernels(  # noqa: N802
        self,
        request: pb.ListKernelsRequest,
        context: object,  # noqa: ARG002 - gRPC's signature
    ) -> pb.ListKernelsResponse:
        """List the kernels by name."""
        first = read_token("kernels", request.page_token) + 1
        names = sorted({entry.name for entry in KERNELS.values()})
        last = min(first + page_size(request.page_size), len(names))
        token = make_token("kernels", last - 1) if last < len(names) else ""
        kernels = [describe_kernel(name) for name in names[first:last]]
        return pb.ListKernelsResponse(kernels=kernels, next_page_token=token)


def describe_kernel(name: str) -> pb.KernelInfo:
    """Return the documentation of a kernel."""
    entry = KERNELS[name]
    text = inspect.getdoc(entry.function) or ""
    constraints = [
        pb.Constraint(name=number, text=" ".join(condition.split()))
        for number, condition in _CONSTRAINT.findall(text)
    ]
    description = _CONSTRAINT.sub("", text).strip()
    return pb.KernelInfo(
        name=name, aliases=entry.aliases, description=description, constraints=constraints
    )


def _run(
    request: pb.RunKernelRequest, limits: Limits, context: Cancellable
) -> pb.RunKernelResponse:
    if not request.kernels:
        raise unspecified("kernels")
    if len(request.kernels) > MAX_KERNELS:
        raise invalid("kernels", f"{len(request.kernels)} kernels", f"at most {MAX_KERNELS}")
    options = _read_options(request.options)
    go_on, memory, contents = CancellationCheck(context), Room(limits), Room(limits)
    earlier: list[Operands] = []
    response = pb.RunKernelResponse()
    for index, kernel in enumerate(request.kernels):
        go_on()
        name = kernel.WhichOneof("kernel")
        try:
            result = _run_one(kernel, name, f"kernels[{index}]", earlier, memory, contents, options)
        except (CallRefused, Asserted) as error:
            refused = _aborted(error.refusal) if isinstance(error, Asserted) else error
            raise from_exception(refused, operation_index=index, operation=name or "") from error
        response.results.append(result)
        expect_answer(contents.used)
        if result.mli_status != pb.MLI_STATUS_OK:
            break
    return response


def _read_options(message: pb.BuildOptions) -> Options:
    return Options(
        _choose(message, "rounding", Rounding.CONVERGENT),
        _choose(message, "debug_level", DebugLevel.RET_CODES),
        _choose(message, "accumulator", Accumulator.EXACT),
        _choose(message, "conversion", Conversion.EXACT),
    )


def _choose(message: pb.BuildOptions, name: str, default: Choice) -> Choice:
    """Return a build option, whose names are the contract's; refuse an unknown number."""
    enum = message.DESCRIPTOR.fields_by_name[name].enum_type
    assert enum is not None
    number: int = getattr(message, name)
    if number not in enum.values_by_number:
        raise invalid(f"options.{name}", number, f"one of {sorted(enum.values_by_number)}")
    label = enum.values_by_number[number].name.removeprefix(f"{name.upper()}_")
    return type(default)[label] if number else default


def _run_one(
    kernel: pb.Kernel,
    name: str | None,
    path: str,
    earlier: list[Operands],
    memory: Room,
    contents: Room,
    options: Options,
) -> pb.KernelResult:
    """Run one kernel; append its tensors to `earlier`."""
    if name is None:
        text = f"{path} has no arm, or one that this server does not know"
        facts = {"field": path, "value": "none", "limit": "an arm of Kernel"}
        raise CallRefused(wire.ERROR_REASON_OPERATION_UNKNOWN, text, **facts)
    message, path = getattr(kernel, name), f"{path}.{name}"
    operands = read_operands(message, path, earlier, memory)
    earlier.append(operands)
    arguments = _arguments(message, operands, path)
    _require_bounded(arguments, path)
    try:
        outcome = KERNELS[name].function(**arguments, options=options)
    except IndexError as error:
        if "idx" not in arguments:
            raise
        raise invalid(f"{path}.idx", arguments["idx"], "a slice of the tensor") from error
    result = _encode(outcome)
    if not result.HasField("refusal") and not kernel.omit_outputs:
        for field in _WRITTEN:
            if isinstance(outcome, Outcome) and field in operands:
                contents.take(f"{path}.{field}", operands[field].capacity)
                result.outputs.add(field=field, tensor=describe(operands[field]))
    return result


def _arguments(message: Message, operands: Operands, path: str) -> dict[str, object]:
    arguments: dict[str, object] = {}
    for field in message.DESCRIPTOR.fields:
        name = "in_" if field.name == "in" else field.name
        kind = field.message_type
        if kind is None:
            arguments[name] = getattr(message, name)
        elif kind is pb.TensorRef.DESCRIPTOR:
            arguments[name] = operands.get(field.name)
        elif not message.HasField(field.name):
            arguments[name] = None
        elif isinstance(cfg := getattr(message, name), pb.RnnCellCfg):
            arguments[name] = _rnn_cell_cfg(cfg, operands.get("cfg.ir_tsr"), f"{path}.cfg")
        else:
            arguments[name] = _subtensor_cfg(cfg, f"{path}.cfg")
    return arguments


def _rnn_cell_cfg(message: pb.RnnCellCfg, ir_tsr: Tensor | None, path: str) -> RnnCellCfg:
    for name in ("mode", "act"):
        if not message.HasField(name):
            raise unspecified(f"{path}.{name}")
    return RnnCellCfg(message.mode, message.act, ir_tsr)


def _subtensor_cfg(message: pb.SubtensorCfg, path: str) -> SubTensorCfg:
    offset = require_short(message.offset, f"{path}.offset")
    size = require_short(message.size, f"{path}.size")
    return SubTensorCfg(offset, size, message.sub_tensor_rank)


def _require_bounded(arguments: Mapping[str, object], path: str) -> None:
    """Refuse kernels that would run too long, or take too much memory, without interruption.

    Claimed sizes of tensors count up to the memory that they have: beyond it the kernel refuses.
    """
    cfg, x = arguments.get("cfg"), arguments.get("in_")
    if not isinstance(cfg, RnnCellCfg) or not isinstance(x, Tensor):
        return
    if cfg.mode == RnnMode.RNN_ONE_TO_ONE:
        return
    frames = min(x.shape[0] if x.shape else 0, _memory(x))
    if frames > MAX_FRAMES:
        most = f"at most {MAX_FRAMES}: split the sequence"
        raise invalid(f"{path}.in.shape[0]", frames, most)
    for name, limit in (("weights", MAX_WORK), ("bias", MAX_SUMS)):
        product = frames * _memory(arguments[name])
        if product > limit:
            what = f"{path}.in.shape[0] times bytes of {name}"
            raise invalid(what, product, f"at most {limit}: split the sequence")


def _memory(tensor: object) -> int:
    return tensor.data.nbytes if isinstance(tensor, Tensor) and tensor.data is not None else 0


def _encode(outcome: Outcome | int) -> pb.KernelResult:
    if not isinstance(outcome, Outcome):
        return pb.KernelResult(number=outcome)
    result = pb.KernelResult(
        mli_status=pb.MliStatus.ValueType(outcome.status),
        accumulator_overflow=outcome.accumulator_overflow,
        messages=outcome.messages,
    )
    if outcome.refusal is not None:
        status = pb.MliStatus.ValueType(int(outcome.refusal.status))
        facts = _facts(outcome.refusal)
        message = pb.Refusal(mli_status=status, text=str(outcome.refusal), **facts)
        result.refusal.CopyFrom(message)
    return result


def _facts(refusal: MliRefusal) -> dict[str, str]:
    """Return the parts of a refusal that the contract names as the emulator does."""
    return {
        "field": refusal.field,
        "value": refusal.value,
        "limit": refusal.limit,
        "constraint": refusal.constraint,
    }


def _aborted(refusal: MliRefusal) -> CallRefused:
    """Return the error for an assertion, which ends the program of a debug build."""
    facts = {"kind": "assertion", **_facts(refusal), "mli_status": int(refusal.status)}
    return CallRefused(wire.ERROR_REASON_PROGRAM_CHECK, str(refusal), **facts)
