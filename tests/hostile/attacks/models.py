# SPDX-License-Identifier: Apache-2.0
"""Models that take memory or time from all clients: rows 1, 6, 8 and 9."""

import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

import numpy as np
import numpy.typing as npt
from nnpa.network.v1 import program_pb2
from nnpa.zdnn.v1 import accelerator_pb2 as zdnn

from tests.hostile import models
from tests.hostile.calls import ACCELERATOR, NETWORK, Answer, Caller
from tests.hostile.gauges import runnable, wait_until_quiet
from tests.hostile.lists import large_product
from tests.hostile.scene import BYSTANDER, Scene, row

COMPILE_SECONDS, RUN_SECONDS = 8.0, 8.0
BUSY_THREADS = 0.5
BEGIN_SECONDS, STOP_SECONDS, QUIET_SECONDS = 8.0, 8.0, 8.0
"""A worker that is started to spare runs for some seconds, too; what is stopped, for a minute."""
LOAD_SECONDS = 10.0


def _bring(scene: Scene, data: bytes) -> None:
    """Bring a model into a session, and note the reason of its refusal."""
    caller = scene.caller()
    answer = models.create(caller, caller.session(), data, timeout=COMPILE_SECONDS)
    scene.require_documented(f"{len(data)} bytes to CreateNetwork", answer)
    scene.stay(COMPILE_SECONDS - answer.seconds)
    caller.close()


def _load(scene: Scene, data: bytes) -> None:
    """Load a model, and note the reason of its refusal."""
    caller = scene.caller()
    answer = models.load(caller, "bomb", data, timeout=COMPILE_SECONDS)
    scene.require_documented(f"{len(data)} bytes to RepositoryModelLoad", answer)
    scene.stay(COMPILE_SECONDS - answer.seconds)
    caller.close()


@row("1a", "shape inference element by element, by CreateNetwork")
def inference_by_network(scene: Scene) -> None:
    """A model of 164 bytes makes shape inference go through 64 Mi elements."""
    _bring(scene, models.inference_bomb())


@row("1b", "shape inference element by element, by RepositoryModelLoad")
def inference_by_load(scene: Scene) -> None:
    """The same model is published for all clients."""
    _load(scene, models.inference_bomb())


@row("1c", "shape inference element by element, inside a Loop")
def inference_in_a_loop(scene: Scene) -> None:
    """The same in a Loop's body, which a check of the outer graph does not see."""
    _bring(scene, models.inference_bomb_in_a_loop())


@row("1d", "model functions that call each other 2**30 times")
def laughing_functions(scene: Scene) -> None:
    """Functions of the model are inlined, each calling the one before it twice."""
    _bring(scene, models.laughing_functions())


@row("1e", "model of 99,000 nodes")
def long_chain(scene: Scene) -> None:
    """A model that takes long for no other reason than its length."""
    _bring(scene, models.long_chain(99_000))


@row("1f", "model functions that become 65,536 nodes")
def many_functions(scene: Scene) -> None:
    """The same in a file of a few hundred bytes."""
    _bring(scene, models.laughing_functions(17))


@row("1g", "three sessions and eight loads bring the model of row 1a at once")
def many_bombs(scene: Scene) -> None:
    """The memory of all models together is bounded."""
    callers = [scene.caller() for _ in range(11)]
    data = models.inference_bomb()

    def bring(number: int) -> Answer:
        caller = callers[number]
        if number < 3:  # the bystander has the fourth session
            return models.create(caller, caller.session(), data, timeout=COMPILE_SECONDS)
        return models.load(caller, f"bomb{number}", data, timeout=COMPILE_SECONDS)

    with ThreadPoolExecutor(len(callers)) as pool:
        answers = list(pool.map(bring, range(len(callers))))
    for name, count in Counter(answer.name for answer in answers).items():
        scene.saw(f"{name}: {count}")
    for caller in callers:
        caller.close()


def _run(scene: Scene, data: bytes, **arrays: npt.NDArray[np.generic]) -> None:
    """Run a model that takes memory on the host."""
    caller = scene.caller()
    session = caller.session()
    try:
        name = models.ready(caller, session, data)
        request = models.infer_request(session, name, **arrays)
        answer = caller.call(NETWORK + "InferNetwork", request, timeout=RUN_SECONDS)
    except models.RefusedError as refusal:
        answer = refusal.answer
    scene.require_documented("a run on the host", answer)
    scene.stay(RUN_SECONDS - answer.seconds)
    caller.close()


@row("6a", "a Loop that doubles a tensor 22 times, on the host")
def doubling_loop(scene: Scene) -> None:
    """A model of 400 bytes asks for 16 GiB while it runs."""
    _run(scene, models.doubling_loop(22), x=np.ones(1024, np.float32))


@row("6b", "a tensor of a size that the input says, on the host")
def sized_by_input(scene: Scene) -> None:
    """A model without a Loop asks for 4 GiB, as its input has it."""
    _run(scene, models.sized_by_input(), n=np.array([1 << 30], np.int64))


@row("6c", "a compiled program with a host node of a run-time size; deadline, then DeleteSession")
def compiled_program(scene: Scene) -> None:
    """A program that was not compiled here asks for 4 GiB, and its caller leaves at once."""
    caller = scene.caller()
    session = caller.session()
    try:
        name = models.ready(caller, session, sizing_program(), "program_bytes")
        request = models.infer_request(session, name, n=np.array([1 << 30], np.int64))
        answer = caller.call(NETWORK + "InferNetwork", request, timeout=0.5)
    except models.RefusedError as refusal:
        answer = refusal.answer
    caller.call(ACCELERATOR + "DeleteSession", zdnn.DeleteSessionRequest(name=session))
    scene.require_documented("a run with a deadline of 0.5 s", answer)
    scene.stay(RUN_SECONDS)
    caller.close()


def sizing_program() -> bytes:
    """Return a compiled program: ConstantOfShape of an input, then its sum."""
    program = program_pb2.Program(name="sizes", machine="telum2", input_ids=[1], output_ids=[3])
    program.inputs.add(name="n", dtype="int64", shape=[1])
    program.outputs.add(name="y", dtype="float32", shape=[])
    program.arrays[1].CopyFrom(program_pb2.ArrayInfo(dtype="int64", shape=[1]))
    program.arrays[2].CopyFrom(program_pb2.ArrayInfo(dtype="float32", shape=[4]))
    program.arrays[3].CopyFrom(program_pb2.ArrayInfo(dtype="float32", shape=[]))
    nodes = [
        models.node("ConstantOfShape", ["n"], ["c"]),
        models.node("ReduceSum", ["c"], ["y"], keepdims=0),
    ]
    for at, node in enumerate(nodes):
        program.nodes.add(index=at, name=node.op_type, op_type=node.op_type, device="host")
        step = program.steps.add(node=at)
        step.host.onnx_node, step.host.opset = node.SerializeToString(), 20
        step.host.inputs.append(at + 1)
        step.host.outputs.append(at + 2)
    return program.SerializeToString()


@row("8a", "a slow model, whose client has left, before another client's model")
def slow_load(scene: Scene) -> None:
    """A small model is loaded within its deadline while a slow one keeps the loader."""
    slow, quick = scene.caller(), scene.caller()
    begin = time.monotonic()
    assert models.load(quick, "first", models.harmless()).is_ok
    alone = time.monotonic() - begin
    for name in ("slow", "slower"):
        threading.Thread(
            target=models.load, args=(slow, name, models.long_loop()), daemon=True
        ).start()
    scene.stay(1.0)
    slow.close()
    answer = models.load(quick, "second", models.harmless(), timeout=LOAD_SECONDS)
    scene.saw(f"a small model: alone {alone:.1f} s, then {answer.seconds:.1f} s, {answer.name}")
    scene.require(answer.is_ok, f"a small model was not loaded: {answer.name}")
    quick.close()


@row(
    "8b",
    "slow models in 20 sessions of one token, before another token's model",
    "--max-sessions",
    "24",
    "--max-session-bytes",
    "42MiB",
    tokens=True,
)
def slow_sessions(scene: Scene) -> None:
    """One token does not take all workers that compile models."""
    _crowd(scene, partial(models.create, data=models.slow_to_fold(), timeout=60.0))


@row("8c", "slow loads of one token, before another token's model", tokens=True)
def slow_loads(scene: Scene) -> None:
    """One token does not take the compilers of all by publishing, either."""

    def load(caller: Caller, number: str) -> Answer:
        name = f"slow{number.rpartition('/')[2]}"
        return models.load(caller, name, models.slow_to_fold(), timeout=60.0)

    _crowd(scene, load, has_sessions=False)


def _crowd(
    scene: Scene, begin: Callable[[Caller, str], Answer], *, has_sessions: bool = True
) -> None:
    """Begin 20 calls with one token; a second token's network and model are ready in time."""
    slow, quick = scene.caller(), scene.caller(BYSTANDER)
    session = quick.session()
    for number in range(20):
        name = slow.session() if has_sessions else str(number)
        threading.Thread(target=begin, args=(slow, name), daemon=True).start()
    scene.stay(2.0)
    network = models.create(quick, session, models.harmless(), timeout=LOAD_SECONDS)
    loaded = models.load(quick, "quick", models.harmless(), timeout=LOAD_SECONDS)
    for word, answer in (("hosted", network), ("published", loaded)):
        scene.saw(f"a small model: {answer.name} after {answer.seconds:.1f} s")
        is_there = answer.is_ok and (word == "published" or not answer.details)
        scene.require(is_there, f"a small model was not {word}: {answer.name} {answer.details}")
    for caller in (slow, quick):
        caller.close()


def _must_stop(scene: Scene, begin: Callable[[], object], stop: Callable[[], object]) -> None:
    """Require that work has a running thread after `begin`, and none soon after `stop`."""
    pid = scene.server.pid
    wait_until_quiet(pid, QUIET_SECONDS, share=BUSY_THREADS)
    idle = before = runnable(pid, 1.0)
    with suppress(Exception), scene.in_background(begin):
        scene.stay(1.5)
        before = runnable(pid, 0.5)
        deadline = time.monotonic() + BEGIN_SECONDS
        while before < idle + BUSY_THREADS and time.monotonic() < deadline:
            before = runnable(pid, 0.5)
    stop()
    stopped = time.monotonic()
    after = runnable(pid, 1.0)
    while after > idle + BUSY_THREADS and time.monotonic() < stopped + STOP_SECONDS:
        after = runnable(pid, 1.0)
    seconds = time.monotonic() - stopped
    scene.saw(
        f"threads that run: idle {idle:.1f}, then {before:.1f}, "
        f"{seconds:.0f} s after the stop {after:.1f}"
    )
    scene.require(before > idle + BUSY_THREADS, "nothing ran that could be stopped")
    scene.require(after <= idle + BUSY_THREADS, f"still {after:.1f} threads {seconds:.0f} s later")


def _host_run(caller: Caller, session: str) -> Callable[[float], Answer]:
    name = models.ready(caller, session, models.long_loop())
    request = models.infer_request(session, name, x=models.long_input())
    return lambda timeout: caller.call(NETWORK + "InferNetwork", request, timeout=timeout)


@row("9a", "a host node runs on after its deadline")
def host_after_deadline(scene: Scene) -> None:
    """A call with a deadline of two seconds leaves nothing that runs."""
    caller = scene.caller()
    run = _host_run(caller, caller.session())
    _must_stop(scene, lambda: run(2.0), lambda: scene.stay(0.5))


@row("9b", "a host node runs on after DeleteSession")
def host_after_delete(scene: Scene) -> None:
    """Deleting a session ends its running calls."""
    caller, second = scene.caller(), scene.caller()
    session = caller.session()
    run = _host_run(caller, session)
    request = zdnn.DeleteSessionRequest(name=session)
    _must_stop(
        scene, lambda: run(30.0), lambda: second.call(ACCELERATOR + "DeleteSession", request)
    )


@row("9c", "a host node runs on after its client has left")
def host_after_client(scene: Scene) -> None:
    """A run ends when its client is gone."""
    caller = scene.caller()
    run = _host_run(caller, caller.session())
    _must_stop(scene, lambda: run(30.0), caller.close)


@row("9d", "a list of large operations runs on after DeleteSession")
def list_after_delete(scene: Scene) -> None:
    """Deleting a session ends an operation, not only a list between two."""
    caller, second = scene.caller(), scene.caller()
    session = caller.session()
    product = large_product(session, size=6400, times=5)
    request = zdnn.DeleteSessionRequest(name=session)
    _must_stop(
        scene,
        lambda: caller.call(ACCELERATOR + "Execute", product, timeout=30.0),
        lambda: second.call(ACCELERATOR + "DeleteSession", request),
    )


@row("9e", "compilation of a model runs on after its client has left")
def compilation_after_client(scene: Scene) -> None:
    """The compilation of a network ends when its client is gone."""
    caller = scene.caller()
    session, data = caller.session(), models.slow_to_fold()
    _must_stop(scene, lambda: models.create(caller, session, data, timeout=60.0), caller.close)


@row("9f", "loading of a model runs on after its client has left")
def load_after_client(scene: Scene) -> None:
    """The compilation of a model for publishing ends when its client is gone."""
    caller, data = scene.caller(), models.slow_to_fold()
    _must_stop(scene, lambda: models.load(caller, "slow", data, timeout=60.0), caller.close)


@row("9g", "compilation of a model runs on after DeleteSession")
def compilation_after_delete(scene: Scene) -> None:
    """Deleting a session ends compilations for it."""
    caller, second = scene.caller(), scene.caller()
    session, data = caller.session(), models.slow_to_fold()
    request = zdnn.DeleteSessionRequest(name=session)
    _must_stop(
        scene,
        lambda: models.create(caller, session, data, timeout=60.0),
        lambda: second.call(ACCELERATOR + "DeleteSession", request),
    )
