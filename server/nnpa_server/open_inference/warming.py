# SPDX-License-Identifier: Apache-2.0
"""The warm-up: compile and run a loaded model once, before a client needs it.

Free dims get guessed sizes. If no guess fits, the first request compiles the model for its shapes.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from nnpa_network.importing.plan import Plan
from nnpa_network.importing.shapes import GUESSES, are_of_shapes
from nnpa_network.program import Array, ModelRefused, Port, Program
from nnpa_network.running.executor import ProgramRunner
from nnpa_network.running.results import StepFailed

from nnpa_server.open_inference.reading import run_bytes

Shapes: TypeAlias = Mapping[str, tuple[int, ...]]
HOW_TO_SAY = (
    "input dims in config.pbtxt, or in the load request's parameter config, say their sizes, "
    "for `nnpa network` --shape does"
)
"""The remedy if guesses do not fit."""
_SEED = 0


@dataclass(frozen=True, slots=True)
class WarmUp:
    """The outcome of a warm-up: facts for the model's configuration, and the failure, if any."""

    facts: Mapping[str, str]
    failure: str = ""


def warm_up(plan: Plan, inputs: Sequence[Port], most: int) -> WarmUp:
    """Compile and run a model once, unless a run has over `most` bytes; raise `ModelRefused`."""
    is_free = any(-1 in port.shape for port in inputs)
    refusals, failed = list[ModelRefused](), None
    for guess in GUESSES if is_free else (None,):
        try:
            done = _run(plan, inputs, guess, most)
        except ModelRefused as error:
            refusals.append(error)
            if not error.node:  # it is no node's shapes
                break
        else:
            if not done.failure:
                return done
            failed = failed or done
    if failed is None and not (is_free and are_of_shapes(refusals)):
        raise refusals[0]
    return failed or _left_out(refusals[0])


def _left_out(refused: ModelRefused) -> WarmUp:
    guesses = ", ".join(map(str, GUESSES))
    text = f"left out: free dims of {guesses} do not fit ({refused}); {HOW_TO_SAY}"
    return WarmUp({"warmup": text})


def _run(plan: Plan, inputs: Sequence[Port], guess: int | None, most: int) -> WarmUp:
    """Run once on random numbers, with free dims of size `guess`; raise `ModelRefused`."""
    shapes = {
        port.name: tuple(guess if guess and dim < 0 else dim for dim in port.shape)
        for port in inputs
    }
    executor = plan.executor(shapes)
    placement, size = _placement(executor.program), run_bytes(executor.program)
    if size > most:
        text = f"left out: it takes {size} bytes, a run may have {most}"
        return WarmUp({**placement, "warmup": text})
    of_dims = "" if guess in (None, GUESSES[0]) else f", free dims {guess}"
    try:
        text = f"random inputs, seed {_SEED}{of_dims}: {_timed(executor, inputs, shapes)}"
    except StepFailed as error:
        return _failed(placement, guess, error)
    return WarmUp({**placement, "warmup": text})


def _failed(placement: Mapping[str, str], guess: int | None, error: StepFailed) -> WarmUp:
    text = f"failed on random inputs: {error}"
    of_dims = "" if guess is None else f" (free dims were taken as {guess}; {HOW_TO_SAY})"
    failure = f"its warm-up {text}{of_dims}; the first request that succeeds makes it ready"
    return WarmUp({**placement, "warmup": text}, failure)


def _placement(program: Program) -> dict[str, str]:
    """Return the number of nodes on each device, and the functions that they call."""
    devices = [node.device for node in program.nodes]
    counts = {device: devices.count(device) for device in ("accelerator", "host", "folded")}
    facts = {f"nodes_{device}": str(count) for device, count in counts.items()}
    functions = sorted({name for node in program.nodes for name in node.functions})
    return {**facts, "functions": ", ".join(functions)}


def _timed(executor: ProgramRunner, inputs: Sequence[Port], shapes: Shapes) -> str:
    """Run a model on random inputs; return its milliseconds and range violations as text."""
    rng = np.random.default_rng(_SEED)
    feeds = {port.name: _sample(rng, port, shapes[port.name]) for port in inputs}
    began = time.perf_counter()
    result = executor.run(feeds)
    elapsed = 1000 * (time.perf_counter() - began)
    return f"{elapsed:.1f} ms, {len(result.violations)} range violations"


def _sample(rng: np.random.Generator, port: Port, shape: tuple[int, ...]) -> Array:
    """Return a random input: normal floats, integers and booleans of 0 and 1, letters for text."""
    if port.dtype.kind in "iub":
        return rng.integers(0, 2, shape).astype(port.dtype)
    if port.dtype.kind in "USO":
        return np.full(shape, "a", object)
    return rng.standard_normal(shape, np.float32).astype(port.dtype)
