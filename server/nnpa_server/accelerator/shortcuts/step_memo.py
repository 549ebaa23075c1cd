# SPDX-License-Identifier: Apache-2.0
"""What shortcuts keep with a step that is run many times."""

from nnpa_emulator.prepared import PreparedCall

from nnpa_server.accelerator.decode import Step


class StepMemo:
    """The prepared call of a step, once it has succeeded."""

    __slots__ = ("prepared",)

    def __init__(self) -> None:
        self.prepared: PreparedCall | None = None


def with_memo(step: Step) -> Step:
    """Return a step that shortcuts may keep something with."""
    return step._replace(memo=StepMemo())
