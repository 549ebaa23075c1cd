# SPDX-License-Identifier: Apache-2.0
"""Programs that workers compile: the same as here, with names, weights and shapes."""

import json
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from nnpa_emulator import Guest, find_machine
from nnpa_network.importing.onnx_import import ImportOptions
from nnpa_network.importing.onnx_plan import OnnxPlan
from nnpa_network.program import ModelRefused
from nnpa_server.network import Pools, make_pools
from nnpa_server.network.worker_plan import WorkerPlan
from nnpa_server.network.workers import Workers, make_workers
from nnpa_server.sandbox import confinement
from nnpa_server.sandbox.frames import Message
from onnx import helper

from tests.network import real_models, small_models
from tests.network.hosting import text_model
from tests.server.network.test_sandboxed_models import TakenOver, looped_bomb, use, with_numbers

pytestmark = pytest.mark.skipif(not confinement.is_linux(), reason="workers are Linux processes")
MODELS: dict[str, Callable[[], bytes]] = {
    "dense": lambda: small_models.dense().SerializeToString(),
    "two_ends": lambda: small_models.two_ends().SerializeToString(),
    "image": lambda: small_models.image().SerializeToString(),
    "quantised": lambda: small_models.quantised().SerializeToString(),
    "residual_cnn": real_models.residual_cnn,
    "encoder": real_models.encoder,
    "tagger": real_models.tagger,
}


@pytest.fixture(scope="module")
def pools() -> Iterator[Pools]:
    """Workers of the module."""
    workers = make_pools("auto")
    assert workers is not None
    yield workers
    workers.close()


@pytest.fixture(scope="module")
def workers(pools: Pools) -> Workers:
    """Workers without a session."""
    return make_workers(pools)


@pytest.mark.parametrize("machine", ["telum1", "telum2"])
@pytest.mark.parametrize("name", MODELS)
def test_a_worker_compiles_the_same_program(name: str, machine: str, workers: Workers) -> None:
    """A worker's program equals this process's: steps, weights, results."""
    data, options = MODELS[name](), ImportOptions()
    here = OnnxPlan(data, Guest(find_machine(machine)), options)
    in_worker = WorkerPlan(data, Guest(find_machine(machine)), options, workers)
    assert (in_worker.name, in_worker.inputs, in_worker.outputs) == (
        here.name,
        here.inputs,
        here.outputs,
    )
    assert in_worker.signature == here.signature
    expected, got = here.executor({}), in_worker.executor({})
    for part in ("inputs", "outputs", "input_ids", "output_ids", "arrays", "tensors", "steps",
                 "nodes", "places", "machine", "name"):  # fmt: skip
        assert getattr(got.program, part) == getattr(expected.program, part), part
    facts = [(weight.name, weight.dtype, weight.shape, bytes(weight.data))
             for plan in (here, in_worker) for weight in plan.weights()]  # fmt: skip
    assert facts[: len(facts) // 2] == facts[len(facts) // 2 :]
    assert in_worker.nbytes == here.nbytes
    feeds = {port.name: _sample(port.dtype, port.shape) for port in got.program.inputs}
    results = expected.run(feeds), got.run(feeds)
    for output, array in results[0].outputs.items():
        assert array.tobytes() == results[1].outputs[output].tobytes()


def _sample(
    dtype: "np.dtype[np.generic]", shape: tuple[int, ...]
) -> "np.ndarray[tuple[int, ...], np.dtype[np.generic]]":
    rng = np.random.default_rng(7)
    drawn = rng.standard_normal(shape) if dtype.kind == "f" else rng.integers(0, 2, shape)
    return np.asarray(drawn).astype(dtype)


def test_what_is_imported_late_is_imported_before(workers: Workers) -> None:
    """A worker that cannot open files compiles what needs modules that NumPy imports late."""
    nodes = [helper.make_node("Pow", ["x", "e"], ["y"], "power")]
    ends = ("x", np.float32, [2, 3]), ("y", np.float32, [2, 3])
    data = small_models.model(nodes, [ends[0]], [ends[1]], {"e": np.array(2, np.float32)})
    options, guest = ImportOptions(offload_integer=True), Guest(find_machine("telum2"))
    WorkerPlan(data.SerializeToString(), guest, options, workers).executor({})


def test_names_that_are_no_text_are_refused(workers: Workers) -> None:
    """A name that ONNX reads and messages cannot carry is MODEL_INVALID, not INTERNAL."""
    model = small_models.dense()
    model.graph.name = "strange"
    data = model.SerializeToString().replace(b"strange", b"str\xffnge")
    with pytest.raises(ModelRefused, match="a name is no UTF-8"):
        WorkerPlan(data, Guest(find_machine("telum1")), ImportOptions(), workers)


def test_other_weights(workers: Workers) -> None:
    """Weights are replaced by the worker, and keep the signature."""
    data = small_models.dense().SerializeToString()
    plan = WorkerPlan(data, Guest(find_machine("telum1")), ImportOptions(), workers)
    parts = [bytes(len(weight.data)) for weight in plan.weights()]
    changed = plan.with_weights(parts)
    assert changed.signature == plan.signature
    ran = changed.executor({}).run({"x": np.ones((1, 4), np.float32)})
    assert not ran.outputs["y"].any()


def test_a_worker_refuses_as_this_process_does(workers: Workers) -> None:
    """Reason and node of a model that cannot be hosted come back as they are."""
    data = small_models.dense().SerializeToString()
    for broken in (b"", data[:-3], b"\xff" * 50, looped_bomb()[:60]):
        with pytest.raises(ModelRefused) as here:
            OnnxPlan(broken, Guest(find_machine("telum1")))
        with pytest.raises(ModelRefused) as in_worker:
            WorkerPlan(broken, Guest(find_machine("telum1")), ImportOptions(), workers)
        assert (here.value.reason, here.value.node) == (
            in_worker.value.reason,
            in_worker.value.node,
        )


def test_shapes_that_come_again_share_constants(workers: Workers) -> None:
    """Sticks of weights are kept once for all programs that use them."""
    data = small_models.dense().SerializeToString()
    plan = WorkerPlan(data, Guest(find_machine("telum1")), ImportOptions(), workers)
    plan.executor({"x": (1, 4)})
    before = plan.nbytes
    plan.executor({"x": (2, 4)})
    assert plan.executor({"x": (2, 4)}) is plan.executor({"x": (2, 4)})
    assert plan.nbytes < 2 * before


def test_weights_are_parts_of_the_file(workers: Workers) -> None:
    """Weights that lie in the file take no other memory; numbers written in another way do."""
    data, guest = with_numbers(), Guest(find_machine("telum1"))
    weights = WorkerPlan(data, guest, ImportOptions(), workers).weights()
    assert [bytes(weight.data) for weight in weights] == [
        bytes(weight.data) for weight in OnnxPlan(data, guest).weights()
    ]
    owners = [weight.data.obj for weight in weights if isinstance(weight.data, memoryview)]
    assert [owner is data for owner in owners] == [True, True, False]


@pytest.mark.parametrize("place", [10**6, 2**70, "0", None, 1.5])
def test_weights_beyond_the_file_are_refused(place: object) -> None:
    """A worker's answer is refused if it places a weight outside of the file."""

    def change(message: Message) -> Message:
        if not message.text.startswith(b'\x00[["w"'):
            return message
        table = json.loads(message.text[1:])
        table[0][-1] = place
        return Message(b"\x00" + json.dumps(table).encode(), message.arrays)

    with pytest.raises(ModelRefused):
        use(TakenOver(change))


@pytest.mark.parametrize(("rows", "is_sent"), [("N", False), ("2", True)])
def test_a_program_for_guessed_sizes_is_sent_when_it_runs(
    rows: str, is_sent: bool, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A runner gets a program of a model with free dims at its first run, and only once."""
    sent: list[str] = []
    load = Workers.load

    def noted(self: Workers, job: Message) -> Message:
        sent.append(json.loads(job.text)[0])
        return load(self, job)

    monkeypatch.setattr(Workers, "load", noted)
    data = text_model(f"g (float[{rows},4] x) => (float[{rows},4] y) {{ y = Cos(x) }}")
    plan = WorkerPlan(data, Guest(find_machine("telum2")), ImportOptions(), workers)
    executor, x = plan.executor({"x": (2, 4)}), np.zeros((2, 4), np.float32)
    assert sent.count("load") == is_sent
    for _ in range(2):
        assert np.array_equal(executor.run({"x": x}).outputs["y"], np.ones((2, 4), np.float32))
        assert sent.count("load") == 1
