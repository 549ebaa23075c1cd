# SPDX-License-Identifier: Apache-2.0
"""The options of a session: machine, library, precheck, program checks, log level, numerics."""

from collections.abc import Collection, Mapping
from copy import deepcopy
from typing import Literal

from google.protobuf.field_mask_pb2 import FieldMask
from nnpa.zdnn.v1 import accelerator_pb2
from nnpa.zdnn.v1 import status_pb2 as wire
from nnpa_emulator.custom_machine import Overrides, customise
from nnpa_emulator.machine import (
    DEFAULT_LIBRARY,
    DEFAULT_MACHINE,
    LIBRARY_VERSIONS,
    MACHINES,
    Guest,
    LogLevel,
    Machine,
)

from nnpa_server.errors import CallRefused, beyond, invalid
from nnpa_server.sessions.tokens import require_machine

_MODEL_PREFIX = "MACHINE_MODEL_"
UPDATABLE = (
    "machine_spec",
    "precheck",
    "status_diag",
    "program_check_action",
    "log_level",
    "log_module",
    "numerics",
    "jitter_seed",
    "accumulate",
    "fault_rules",
    "trace",
)
_LOG_MODULE_BYTES = 1023  # source: nnpa/zdnn/v1/accelerator.proto, Session.log_module
# Values of the contract's enums, with the emulator's names for them.
_NUMERICS: dict[int, Literal["exact", "jitter"]] = {
    accelerator_pb2.NUMERICS_UNSPECIFIED: "exact",
    accelerator_pb2.NUMERICS_EXACT: "exact",
    accelerator_pb2.NUMERICS_JITTER: "jitter",
}
_ACCUMULATE: dict[int, Literal["fp32", "fp64"]] = {
    accelerator_pb2.ACCUMULATE_UNSPECIFIED: "fp32",
    accelerator_pb2.ACCUMULATE_FP32: "fp32",
    accelerator_pb2.ACCUMULATE_FP64: "fp64",
}
_ENUM_NUMBERS: Mapping[str, Collection[int]] = {
    "program_check_action": accelerator_pb2.ProgramCheckAction.values(),
    "log_level": accelerator_pb2.LogLevel.values(),
    "numerics": _NUMERICS,
    "accumulate": _ACCUMULATE,
}


def model_name(spec: accelerator_pb2.MachineSpec) -> str:
    """Return the name of the machine model in a spec."""
    try:
        name = accelerator_pb2.MachineModel.Name(spec.model)
    except ValueError:
        numbers = f"a number of MachineModel, 0 to {max(accelerator_pb2.MachineModel.values())}"
        raise _machine_invalid("session.machine_spec.model", spec.model, numbers) from None
    if spec.model == accelerator_pb2.MACHINE_MODEL_UNSPECIFIED:
        return DEFAULT_MACHINE
    return name.removeprefix(_MODEL_PREFIX).lower().replace("_", "-")


def choose_machine(spec: accelerator_pb2.MachineSpec) -> Machine:
    """Return the machine of a spec, customised or not.

    Raise CallRefused with MACHINE_INVALID if no such machine can exist, and with
    MACHINE_NOT_ALLOWED if the caller's token is not for it.
    """
    model = model_name(spec)
    require_machine(model)
    try:
        return customise(MACHINES[model], _overrides(spec))
    except ValueError as error:
        name, _, story = str(error).partition(": ")
        raise _machine_invalid(f"session.machine_spec.{name}", story, "of the model") from None


def _machine_invalid(path: str, value: object, limit: str) -> CallRefused:
    text = f"{path}: {value}, must be {limit}"
    return beyond(wire.ERROR_REASON_MACHINE_INVALID, text, path, value, limit)


def _overrides(spec: accelerator_pb2.MachineSpec) -> Overrides:
    values = {field.name: value for field, value in spec.ListFields()}
    dim4, dim3, dim2, dim1 = (values.get(f"max_dim{number}") for number in (4, 3, 2, 1))
    formats = values.get("parmblk_formats_mask")
    return Overrides(
        max_dim_idx_size=values.get("max_dim_idx_size"),
        max_dims=(dim4, dim3, dim2, dim1),
        max_tensor_size=values.get("max_tensor_size"),
        removed_functions=frozenset(spec.removed_functions),
        added_functions=frozenset(spec.added_functions),
        parmblk_formats=None if formats is None else formats << 96,
        data_types=values.get("data_types_mask"),
        layout_formats=values.get("layout_formats_mask"),
    )


def check_options(options: accelerator_pb2.Session) -> None:
    """Refuse numbers that are no enum values, and a log_module that is too long for C."""
    for name, numbers in _ENUM_NUMBERS.items():
        number: int = getattr(options, name)
        if number not in numbers:
            allowed = ", ".join(map(str, sorted(numbers)))
            raise invalid(f"session.{name}", number, f"one of {allowed}")
    size = len(options.log_module.encode())
    if size > _LOG_MODULE_BYTES:
        raise invalid("session.log_module", f"{size} bytes", f"at most {_LOG_MODULE_BYTES} bytes")


def apply_options(guest: Guest, options: accelerator_pb2.Session) -> None:
    """Set the options of a session on its guest, without a new query of the machine."""
    guest.machine = choose_machine(options.machine_spec)
    guest.precheck = options.precheck
    guest.status_diag = options.status_diag if options.HasField("status_diag") else None
    guest.log_level = LogLevel(options.log_level) if options.log_level else None
    guest.log_module = options.log_module
    guest.numerics = _NUMERICS[options.numerics]
    guest.jitter_seed = options.jitter_seed
    guest.accumulate = _ACCUMULATE[options.accumulate]


def make_guest(options: accelerator_pb2.Session) -> Guest:
    """Return the guest of a new session, after zdnn_init."""
    check_options(options)
    library = options.library_version or DEFAULT_LIBRARY
    if library not in LIBRARY_VERSIONS:
        field, versions = "session.library_version", ", ".join(LIBRARY_VERSIONS)
        text = f"{field} is {library[:32]!r}, must be one of {versions}"
        reason = wire.ERROR_REASON_LIBRARY_VERSION_UNKNOWN
        raise beyond(reason, text, field, library[:32], versions)
    guest = Guest(choose_machine(options.machine_spec), library)
    apply_options(guest, options)
    return guest


def chosen_options(options: accelerator_pb2.Session) -> accelerator_pb2.Session:
    """Return the options that a client chose, without output-only fields."""
    kept = accelerator_pb2.Session()
    chosen = FieldMask(paths=("library_version", "sanitize", "lease", *UPDATABLE))
    chosen.MergeMessage(options, kept)
    kept.library_version = kept.library_version or DEFAULT_LIBRARY
    return kept


def updated_options(
    current: accelerator_pb2.Session, request: accelerator_pb2.UpdateSessionRequest
) -> accelerator_pb2.Session:
    """Return options with the mask's fields replaced; without a mask, the fields that are set."""
    names = [field.name for field, _ in request.session.ListFields() if field.name in UPDATABLE]
    mask = FieldMask(paths=request.update_mask.paths or names)
    for path in mask.paths:
        if path not in UPDATABLE:
            raise invalid("update_mask.paths", path[:64], f"one of {', '.join(UPDATABLE)}")
    new = deepcopy(current)
    mask.MergeMessage(request.session, new, replace_message_field=True, replace_repeated_field=True)
    check_options(new)
    return new
