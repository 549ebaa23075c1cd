# SPDX-License-Identifier: Apache-2.0
"""Errors and warnings of kernels.

NnpaError
  MliError               a status that is not MLI_STATUS_OK; nothing was written
  ProgramCheck           kind "assertion": a build of debug level ASSERT or above aborts
  TransportError         the call did not reach the library
MliWarning (UserWarning) a remark on a call with status MLI_STATUS_OK
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

    `status` is the number, `name` the library's name of it, `kernel` the function, `refusal` has
    field, value, limit and constraint. `kernel_index` is the call's index in a batch, 0-based:
    calls before it have written their outputs, calls after it have not run.
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

    An overflow of the accumulator, a condition that a RELEASE build does not check (nothing was
    written), or a message of debug level DEBUG.
    """


def remarks(kernel: str, result: KernelResult) -> list[str]:
    """Return the texts of the warnings about a call with status MLI_STATUS_OK."""
    texts = list(result.messages)
    if result.accumulator_overflow:
        texts.append("a partial sum left the accumulator, the result is undefined in MLI")
    if result.HasField("refusal"):
        texts.append(f"nothing is written: {result.refusal.text}")
    return [f"mli_{kernel}: {text}" for text in texts]
