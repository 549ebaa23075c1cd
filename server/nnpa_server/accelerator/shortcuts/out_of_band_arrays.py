# SPDX-License-Identifier: Apache-2.0
"""Out-of-band arrays: large arrays of a list travel beside its message, without a copy."""

from collections.abc import Sequence

from nnpa_server.accelerator.decode import Request, Step
from nnpa_server.accelerator.seams import CallPath
from nnpa_server.errors import invalid
from nnpa_server.rpc.codec import WireRequest
from nnpa_server.sessions.store import Session


def wrap(path: CallPath, _session: Session) -> None:
    """Attach the out-of-band arrays of a list to its steps."""
    plain = path.decode

    def decode(session: Session, request: Request) -> Sequence[Step]:
        steps = plain(session, request)
        if not isinstance(request, WireRequest) or not request.arrays:
            return steps
        whole = list(steps)
        for index, arrays in request.arrays.items():
            step = whole[index]
            if step.origin is not None and step.origin.shared_data:
                path = f"operations[{index}].shared_data"
                count = f"{len(step.origin.shared_data)} extents"
                raise invalid(path, count, "unset with data in the message")
            whole[index] = step._replace(values={**step.values, "data": arrays})
        return whole

    path.decode = decode
