# SPDX-License-Identifier: Apache-2.0
"""A program on a guest: loaded once, then run any number of times, also at the same time."""

from collections import Counter
from collections.abc import Collection, Generator, Mapping, Sequence
from typing import Protocol

import numpy as np
from nnpa_emulator import Guest

from nnpa_network.program import AcceleratorStep, Array, ModelRefused, Program
from nnpa_network.running.arrays import check_feed, count_nans
from nnpa_network.running.composition import compose
from nnpa_network.running.loading import LoadedProgram
from nnpa_network.running.observed import NodeEvent, Observer, run_by_node
from nnpa_network.running.plain import Run
from nnpa_network.running.results import Result
from nnpa_network.shortcuts import SHORTCUTS


class ProgramRunner(Protocol):
    """An executor of a program, in this process or in another."""

    @property
    def program(self) -> Program:
        """The program."""
        ...

    def run(self, inputs: Mapping[str, Array], observer: Observer | None = None) -> Result:
        """Run once over named inputs; raise `ModelRefused` for wrong inputs, `StepFailed`.

        Exceptions of the thread's check end the run: see `nnpa_emulator.interruption`.
        """
        ...


class Executor:
    """A program on a guest; `run` may be called from several threads.

    The guest provides storage for sticks, and its machine is the one that the program is for.
    `sources` are executors on the same guest, of programs from which the program was derived.
    """

    def __init__(
        self,
        program: Program,
        guest: Guest,
        shortcuts: Collection[str] = SHORTCUTS,
        sources: "Sequence[Executor]" = (),
    ) -> None:
        if guest.machine.name != program.machine:
            limit = f"this program is for {program.machine}"
            raise ModelRefused(f"guest.machine is {guest.machine.name}, {limit}")
        self.program, self.guest = program, guest
        self.shortcuts = shortcuts
        self._loaded: LoadedProgram = LoadedProgram(
            program, guest, [source._loaded for source in sources]
        )
        self._run_program = compose(self._loaded, shortcuts)
        self._loaded.compile()
        calls = [step.verb for step in program.steps if isinstance(step, AcceleratorStep)]
        self._calls = dict(Counter(calls))

    def run(self, inputs: Mapping[str, Array], observer: Observer | None = None) -> Result:
        """Run once over named inputs; raise `ModelRefused` for wrong inputs, `StepFailed`.

        An observed run takes no shortcut.
        """
        run = self.begin(inputs)
        if observer is None:
            self._run_program(run)
        else:
            for event in run_by_node(run):
                observer(event)
        return self.result(run)

    def run_by_node(self, inputs: Mapping[str, Array]) -> Generator[NodeEvent, None, Result]:
        """Run once without shortcuts, and yield before and after nodes; raise as `run` does."""
        run = self.begin(inputs)
        yield from run_by_node(run)
        return self.result(run)

    def begin(self, inputs: Mapping[str, Array]) -> Run:
        """Return a run of which no step was run yet; raise `ModelRefused` for wrong inputs."""
        loaded, program = self._loaded, self.program
        run = Run(loaded, loaded.arrays.copy(), loaded.tensors.copy())
        for port, number in zip(program.inputs, program.input_ids, strict=True):
            run.arrays[number] = check_feed(port.name, port.dtype, port.shape, inputs)
        return run

    def result(self, run: Run) -> Result:
        """Return what a run of which all steps were run has given."""
        ids = {
            port.name: number
            for port, number in zip(self.program.outputs, self.program.output_ids, strict=True)
        }
        outputs = {name: np.asarray(run.arrays[number], order="C") for name, number in ids.items()}
        nans = {
            name: 0 if number in run.numeric else count_nans(run.arrays[number])
            for name, number in ids.items()
        }
        return Result(outputs, tuple(run.violations), nans, self._calls.copy())
