# SPDX-License-Identifier: Apache-2.0
"""A block whose calls leave together."""

from collections.abc import Sequence

from nnpa.zdnn.v1.operation_pb2 import OperationResult

__tracebackhide__ = True  # pytest shows the line that called, not these


class Pipeline:
    """Calls that leave together: verbs queue, and one Execute runs them when the block ends.

    `results` holds every answer afterwards. A verb whose value is needed at once (`numpy()`,
    queries) sends what is queued so far. When an operation fails, those after it have not run,
    and ZdnnError tells its place in the list.
    """

    def __init__(self, results: Sequence[OperationResult]) -> None:
        self._results = results

    @property
    def results(self) -> Sequence[OperationResult]:
        """The answers so far, in order of the calls."""
        return tuple(self._results)
