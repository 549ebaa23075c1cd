# SPDX-License-Identifier: Apache-2.0
"""Cached results: of an operation that succeeds again with its outputs in the same state."""

from typing import TypeAlias

from nnpa.zdnn.v1 import operation_pb2
from nnpa_emulator import OK, Outcome, Ztensor
from nnpa_emulator.ztensor import TensorDesc

from nnpa_server.accelerator.decode import Step
from nnpa_server.accelerator.encode import cache_output, locate_sticks, place_output
from nnpa_server.accelerator.execute import answer, describe_ztensor
from nnpa_server.accelerator.seams import CallPath, EncodeResult, Result, Sticks, Tensors
from nnpa_server.accelerator.shortcuts.step_memo import StepMemo
from nnpa_server.rpc.codec import Array
from nnpa_server.sessions.store import Session

State: TypeAlias = tuple[TensorDesc, TensorDesc, int, bool, bool, float, float]
_MAX_RESULTS = 4096  # of a session
_MAX_STEP_RESULTS = 8  # of one step: its outputs are in the same state nearly always
_NO_STICKS: Sticks = {}


def wrap(path: CallPath, _session: Session) -> None:
    """Cache results: those of inline outputs with their step, others by operation and output."""
    path.encode_result = _Results(path.encode_result)


class _Results:
    """The results of one session by operation and id of the output, with the output's state."""

    def __init__(self, plain: EncodeResult) -> None:
        self._plain = plain
        self._results: dict[tuple[str, int], tuple[State, Result]] = {}

    def __call__(
        self, session: Session, step: Step, tensors: Tensors, outcome: Outcome
    ) -> tuple[Result, Sticks]:
        """Return a result that was encoded before, if it says the same."""
        if outcome is not OK:
            return self._plain(session, step, tensors, outcome)
        memo = step.memo
        if step.inline and isinstance(memo, StepMemo) and step.arm.compute:
            return _encode_inline(session, step, memo, tensors)
        if step.inline or step.new_ids or len(step.arm.written) != 1:
            return self._plain(session, step, tensors, outcome)
        name = step.arm.written[0]
        key, state = (step.arm.name, step.ids.get(name, step.creates)), _state(tensors[name])
        cached = self._results.get(key)
        if cached is not None and cached[0] == state:
            return cached[1], _NO_STICKS
        result, sticks = self._plain(session, step, tensors, outcome)
        if len(self._results) >= _MAX_RESULTS:
            self._results.clear()
        self._results[key] = state, result
        return result, sticks


def _state(tensor: Ztensor) -> State:
    return (
        tensor.pre_transformed_desc,
        tensor.transformed_desc,
        tensor.buffer_size,
        tensor.buffer is None,
        tensor.is_transformed,
        tensor.rec_scale,
        tensor.offset,
    )


def _encode_inline(
    session: Session, step: Step, memo: StepMemo, tensors: Tensors
) -> tuple[Result, Sticks]:
    """Return the result of an operation with inline tensors; its sticks go beside it."""
    states: list[object] = []
    sticks: dict[int, Array] = {}
    for index, name in enumerate(step.arm.written):
        contents = place_output(session, tensors[name], step.inline[name])
        if contents is not None:
            sticks[index] = contents
        states.append((_state(tensors[name]), contents is None))
    key = tuple(states)
    result = memo.results.get(key)
    if result is None:
        if len(memo.results) >= _MAX_STEP_RESULTS:
            memo.results.clear()
        result = memo.results[key] = _describe(step, tensors, sticks)
    for name in step.arm.written:
        cache_output(session, tensors[name], step.inline[name])
    return result, sticks


def _describe(step: Step, tensors: Tensors, sticks: Sticks) -> operation_pb2.OperationResult:
    result = answer(OK)
    for index, name in enumerate(step.arm.written):
        message = locate_sticks(describe_ztensor(tensors[name]), step.inline[name], index in sticks)
        result.outputs.add(operand=name, ztensor=message)
    return result
