# SPDX-License-Identifier: Apache-2.0
"""The testee of the Python SDK: `ZDNN_SERVER=... python -m tests.conformance.python_testee`.

It answers frames on stdin and stdout, and calls public functions of `nnpa_client` only:
deploy/docs/develop/sdk-contract.md, "Testee".
"""

import inspect
import json
import os
import struct
import sys
import warnings
from collections.abc import Mapping
from typing import Any, BinaryIO

import numpy as np
from google.protobuf import json_format
from nnpa.zdnn.v1.operation_pb2 import FpFlags, RangeViolation
from nnpa.zdnn.v1.tensor_pb2 import Ztensor as Structure
from nnpa_client import (
    MachineSpec,
    ProgramCheck,
    Session,
    TransportError,
    ZdnnError,
    ZdnnWarning,
    Ztensor,
    connect,
    zdnn,
)

from tests.conformance.plain import json_float, words_of
from tests.conformance.python_locals import call, descriptor
from tests.vector_runner import Json, cell_bytes, little_endian

Answer = dict[str, Any]
OUTPUTS = ("output", "output_a", "output_b", "hn_output", "cf_output", "dest", "ztensor")
SHAPED = frozenset(("output", "output_a", "output_b", "hn_output", "cf_output"))
MISALIGNED = ("buffer_misaligned", "save_area_misaligned", "work_area_misaligned")
# Bytes of the pre-transformed types that have not four.
WIDTHS: Mapping[int, int] = {zdnn.INT8: 1, zdnn.FP16: 2, zdnn.BFLOAT: 2}
NO_STATUS = (bool, int)


class Program:
    """A session and the ztensors that the vector has named."""

    def __init__(self, session: Session, tensors: Json) -> None:
        self._session = session
        self._named = {int(key): self._put(tensor) for key, tensor in tensors.items()}

    def _put(self, line: Json) -> Ztensor:
        structure = Structure(
            pre_transformed_desc=descriptor(line["pre_transformed_desc"]),
            transformed_desc=descriptor(line["transformed_desc"]),
            buffer_size=line["buffer_size"],
            is_transformed=line["is_transformed"],
            rec_scale=line["rec_scale"],
            offset=line["offset"],
        )
        sticks = little_endian(line["memory"]) if "memory" in line else None
        return self._session.put_ztensor(structure, sticks)

    def step(self, line: Json) -> Answer:
        """Make one call, or move the guest, and tell what can be seen of it."""
        if "machine_spec" in line:
            self._session.update(json_format.ParseDict(line["machine_spec"], MachineSpec()))
            return {}
        name, fields = next(arm for arm in line["operation"].items() if arm[0] not in MISALIGNED)
        arguments = {key: self._argument(value) for key, value in fields.items()}
        answer: Answer = {}
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                returned = self._call(name, arguments, line.get("data", []))
                answer.update(_returned(name, returned, arguments))
            except ZdnnError as error:
                answer.update(_refused(error, arguments))
            except ProgramCheck:
                return {"error": "PROGRAM_CHECK"}
            except TransportError as error:
                return {"error": error.reason}
            except ValueError as error:
                if not isinstance(error.__cause__, TransportError):
                    raise
                return {"error": error.__cause__.reason}
        for warning in caught:
            assert isinstance(warning.message, ZdnnWarning), warning.message
            answer["status"] = int(warning.message.status)
            answer.update(_violation(warning.message.violation))
        self._name_new(fields, arguments)
        operands = {key: value for key, value in arguments.items() if key in OUTPUTS}
        answer["outputs"] = {key: _seen(ztensor) for key, ztensor in operands.items()}
        flagged = arguments.get("ztensor") or arguments.get("dest")
        if isinstance(flagged, Ztensor) and name.startswith("transform_"):
            answer["fp_flags"] = [flag for flag in _FLAGS if flagged.flags & _FLAGS[flag]]
        return answer

    def _argument(self, value: Any) -> Any:
        if isinstance(value, dict) and "id" in value:
            return self._named[value["id"]]
        if isinstance(value, dict):
            return None if "new_id" in value else descriptor(value)
        return float(value) if isinstance(value, str) else value

    def _call(self, name: str, arguments: dict[str, Any], data: list[str]) -> Any:
        """Call the verb by C's parameter names; what it returns goes among the arguments."""
        verb = getattr(zdnn, name)
        if name in ("is_nnpa_function_installed", "is_nnpa_parmblk_fmt_installed"):
            codes = arguments.get("function_codes", arguments.get("format_codes", []))
            return verb(arguments.get("count", len(codes)), *codes)
        parameters = inspect.signature(verb).parameters
        chosen = {key: arguments[key] for key in arguments if key in parameters}
        if name.startswith("init_") and "ztensor" in arguments:
            returned = arguments["ztensor"] = verb(*list(arguments.values())[1:])
            return returned
        if data and name == "transform_ztensor":
            return verb(arguments["ztensor"], *map(little_endian, data))
        for key, parameter in parameters.items():
            if key not in chosen and parameter.default is parameter.empty:
                chosen[key] = little_endian(data[0]) if key == "data" and data else None
        returned = verb(**{key: value for key, value in chosen.items() if key != "gates"})
        outputs = [key for key in arguments if key in SHAPED and arguments[key] is None]
        several = returned if isinstance(returned, tuple) else (returned,)
        arguments.update(zip(outputs, several, strict=False))
        return returned

    def _name_new(self, fields: Json, arguments: Json) -> None:
        for key, value in fields.items():
            number = value.get("new_id") if isinstance(value, dict) else None
            if key == "ztensor" and isinstance(value, int):
                number = value
            if number is not None and isinstance(arguments[key], Ztensor):
                self._named[number] = arguments[key]


_FLAGS = {name: FpFlags.Value(f"FP_FLAGS_{name}") for name in ("INVALID", "OVERFLOW", "UNDERFLOW")}


def _returned(name: str, returned: Any, arguments: Json) -> Answer:
    """Return what a call that came back says."""
    if name == "getrange_ztensor":
        limits = [struct.pack(">f", limit).hex().upper() for limit in returned]
        return {"status": 0, "range": limits}
    if isinstance(returned, NO_STATUS):
        return {"value": returned}
    if isinstance(returned, np.ndarray):
        width = WIDTHS.get(arguments["ztensor"].pre_transformed_desc.type, 4)
        return {"status": 0, "data_out": words_of(returned.tobytes(), width)}
    return {"status": 0}


def _refused(error: ZdnnError, arguments: Json) -> Answer:
    answer: Answer = {"status": int(error.status), **_violation(error.violation)}
    if error.refusal is not None:
        answer["refusal"] = error.refusal.constraint
    if error.result is not None and error.result.HasField("data"):
        width = WIDTHS.get(arguments["ztensor"].pre_transformed_desc.type, 4)
        answer["data_out"] = words_of(error.result.data, width)
    return answer


def _violation(violation: RangeViolation | None) -> Answer:
    if violation is None:
        return {}
    elements = {
        operand.operand: [
            [*element.index, f"{element.code:04X}", *map(json_float, element.operand_values)]
            for element in operand.elements
        ]
        for operand in violation.operands
    }
    return {"violation": elements}


def _seen(ztensor: Ztensor | None) -> Answer | None:
    """Return what the program sees of a ztensor."""
    if ztensor is None:
        return None
    seen: Answer = {
        "is_transformed": ztensor.is_transformed,
        "buffer_size": ztensor.buffer_size,
        "rec_scale": ztensor.rec_scale,
        "offset": ztensor.offset,
    }
    if ztensor.id and not ztensor.structure.null_buffer:
        sticks = ztensor.read_sticks()
        seen["memory"] = words_of(sticks.tobytes(), cell_bytes(ztensor.transformed_desc))
    return seen


def run(target: str, line: Json) -> Answer:
    """Run one vector in a session of its own."""
    for step in line["steps"]:
        shifted = [key for key in step.get("operation", {}) if key in MISALIGNED]
        if shifted:
            return {"skipped": f"{shifted[0]}: the SDK's buffers are the server's, on 4 KiB"}
    spec = json_format.ParseDict(line["machine_spec"], MachineSpec())
    with connect(target, spec, line["library"], line["precheck"]) as session:
        program = Program(session, line["tensors"])
        return {"steps": [program.step(step) for step in line["steps"]]}


def main(stdin: BinaryIO, stdout: BinaryIO, target: str) -> None:
    """Answer frames until there are no more."""
    while header := stdin.read(4):
        request = json.loads(stdin.read(int.from_bytes(header, "little")))
        kind = "file" if "file" in request else "local"
        vector = request["vector"]
        if kind == "file":
            reply = run(target, vector)
        else:
            reply = call(target, request["local"], vector["arguments"])
        answer = {kind: request[kind], "name": vector["name"], **reply}
        raw = json.dumps(answer).encode()
        stdout.write(len(raw).to_bytes(4, "little") + raw)
        stdout.flush()


if __name__ == "__main__":
    main(sys.stdin.buffer, sys.stdout.buffer, os.environ["ZDNN_SERVER"])
