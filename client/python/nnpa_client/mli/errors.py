# SPDX-License-Identifier: Apache-2.0
"""What a kernel can answer besides its outputs.

NnpaError
  MliError               a status that is not MLI_STATUS_OK; nothing was written
  ProgramCheck           kind "assertion": a build of debug level ASSERT or above aborts
  TransportError         the call did not reach the library
MliWarning (UserWarning) the status is MLI_STATUS_OK, and there is something to know
"""

from nnpa.mli.v1.mli_pb2 import KernelResult, MliStatus, Refusal

from nnpa_client.errors import NnpaError


def status_name(status: int) -> str:
    """Return the library's name of a status, or its number."""
    if status in MliStatus.values():
        return MliStatus.Name(MliStatus.ValueType(status))
    return str(status)


class MliError(NnpaError):
    """A status that is not MLI_STATUS_OK.

    `status` is the number, `name` the library's name of it, `kernel` the function, `refusal` tells
    field, value, limit and constraint. `kernel_index` is the call's place in a batch, 0-based:
    the outputs of calls before it are there, those after it have not run.
    """

    def __init__(self, kernel: str, result: KernelResult, kernel_index: int | None = None) -> None:
        self.kernel = kernel
        self.status = int(result.mli_status)
        self.name = status_name(self.status)
        self.refusal: Refusal = result.refusal
        self.kernel_index = kernel_index
        place = "" if kernel_index is None else f"kernel {kernel_index}, "
        super().__init__(f"{place}mli_{kernel}: {self.refusal.text or self.name}")


class MliWarning(UserWarning):
    """A remark on a call with status MLI_STATUS_OK.

    An accumulator that overflowed, a condition that a RELEASE build does not see (nothing was
    written), or a message of debug level DEBUG.
    """


def remarks(kernel: str, result: KernelResult) -> list[str]:
    """Return what there is to know about a call that was answered with MLI_STATUS_OK."""
    found = list(result.messages)
    if result.accumulator_overflow:
        found.append("a partial sum left the accumulator, the result is undefined in MLI")
    if result.HasField("refusal"):
        found.append(f"nothing is written: {result.refusal.text}")
    return [f"mli_{kernel}: {one}" for one in found]
