# SPDX-License-Identifier: Apache-2.0
"""Small inputs that the server answers with a failure of its own: row 10."""

import numpy as np
from nnpa.network.v1 import network_pb2
from nnpa.zdnn.v1 import operation_pb2 as wire

from tests.hostile import models
from tests.hostile.calls import ACCELERATOR, HEALTH, INFERENCE, NETWORK, REFLECTION
from tests.hostile.plain_socket import PlainCall, frame
from tests.hostile.scene import Scene, row

GARBAGE = (b"\x0a", b"\xff", b"\x08", b"\x12\x05ab", b"\xff" * 20)


def _send_garbage(scene: Scene, *paths: str) -> None:
    caller = scene.caller("")
    for path in paths:
        for raw in GARBAGE:
            attempt = f"{raw.hex()[:8]} to {path.rpartition('/')[2]}"
            scene.require_documented(attempt, caller.call(path, raw, timeout=2.0))
    scene.require_quiet_log("garbage")
    caller.close()


@row("10a", "the byte 0a, and other garbage, to methods of lists")
def garbage_to_lists(scene: Scene) -> None:
    """A message that ends too early is INVALID_ARGUMENT, in every codec."""
    _send_garbage(scene, ACCELERATOR + "Execute", ACCELERATOR + "ExecuteStream")


@row("10b", "the byte 0a, and other garbage, to a plain socket")
def garbage_to_plain_sockets(scene: Scene) -> None:
    """The same without HTTP/2."""
    for raw in GARBAGE:
        with PlainCall(scene.server.socket) as call:
            scene.require_documented(f"{raw.hex()[:8]} as a message", call.ask(raw))
        with PlainCall(scene.server.socket) as call:
            call.send(raw)
            scene.require_documented(f"{raw.hex()[:8]} as a frame", call.finish())
    with PlainCall(scene.server.socket) as call:
        call.send(frame(0x41, b"odd flag"))
        scene.require_documented("a flag of nothing", call.receive())
    scene.require_quiet_log("garbage")


@row("10c", "garbage to health and reflection")
def garbage_to_probes(scene: Scene) -> None:
    """Nor do methods without a token fill the log."""
    _send_garbage(scene, HEALTH + "Check", HEALTH + "Watch", REFLECTION)


@row("10d", "garbage to every other service")
def garbage_to_services(scene: Scene) -> None:
    """The same for services with other codecs."""
    _send_garbage(
        scene,
        ACCELERATOR + "CreateSession",
        ACCELERATOR + "WriteTensor",
        NETWORK + "CreateNetwork",
        NETWORK + "InferNetwork",
        INFERENCE + "ModelInfer",
        INFERENCE + "ModelStreamInfer",
        "/nnpa.mli.v1.MliService/RunKernel",
        "/nnpa.zdnn.v1.TraceService/RecordTrace",
    )


@row("10e", "MeasureAccuracy with a sample that lacks an input, or has one too many")
def bad_samples(scene: Scene) -> None:
    """Samples are checked as inputs of inferences are."""
    caller = scene.caller()
    session = caller.session()
    name = models.ready(caller, session, models.harmless())
    array = models.infer_request(session, name, x=np.ones((1, 4), np.float32)).inputs[0]
    samples: dict[str, network_pb2.Sample] = {}
    samples["an empty sample"] = network_pb2.Sample()
    for spoiled, field, content in (
        ("another name", "name", "z"),
        ("no type", "dtype", ""),
        ("an unknown type", "dtype", "float33"),
        ("half of the bytes", "data", bytes(8)),
    ):
        sample = samples.setdefault(spoiled, network_pb2.Sample(inputs=[array]))
        setattr(sample.inputs[0], field, content)
    samples["no shape"] = network_pb2.Sample(inputs=[array])
    del samples["no shape"].inputs[0].shape[:]
    samples["one input too many"] = network_pb2.Sample(inputs=[array, array])
    samples["one input too many"].inputs[1].name = "z"
    for attempt, sample in samples.items():
        request = network_pb2.MeasureAccuracyRequest(
            session=session, network=name, samples=[sample]
        )
        answer = caller.call(NETWORK + "MeasureAccuracy", request, timeout=20.0)
        scene.require_documented(attempt, answer)
        inference = network_pb2.InferNetworkRequest(
            session=session, network=name, inputs=sample.inputs
        )
        answer = caller.call(NETWORK + "InferNetwork", inference)
        scene.require_documented(f"{attempt}, inferred", answer)
    scene.require_quiet_log("samples")
    caller.close()


@row("10f", "a model with an initializer of strings")
def strings(scene: Scene) -> None:
    """A model that cannot be hosted is MODEL_INVALID."""
    caller = scene.caller()
    session = caller.session()
    scene.require_documented("CreateNetwork", models.create(caller, session, models.with_string()))
    scene.require_documented(
        "RepositoryModelLoad", models.load(caller, "words", models.with_string())
    )
    scene.require_quiet_log("strings")
    caller.close()


@row("10g", "models that are no models")
def spoiled_models(scene: Scene) -> None:
    """Bytes of any kind are MODEL_INVALID, as networks and as published models."""
    caller = scene.caller()
    session, whole = caller.session(), models.harmless()
    spoiled = {
        "the byte 0a": b"\x0a",
        "half of a model": whole[: len(whole) // 2],
        "an operator that is none": models.harmless("NoOperator"),
        "a graph without nodes": models.model([], [("x", 1, (4,))], [("x", 1, (4,))]),
        "an output of nothing": models.model([], [], [("y", 1, (4,))]),
        "a dimension of 2**62": models.model(
            [models.node("Relu", ["x"], ["y"])], [("x", 1, (1 << 62,))], [("y", 1, (1 << 62,))]
        ),
        "a dimension below zero": models.model(
            [models.node("Relu", ["x"], ["y"])], [("x", 1, (-5,))], [("y", 1, (-5,))]
        ),
        "an operation as program": wire.Operation(init=wire.Init()).SerializeToString() * 9,
    }
    for attempt, data in spoiled.items():
        scene.require_documented(f"{attempt}: network", models.create(caller, session, data))
        scene.require_documented(f"{attempt}: published", models.load(caller, "spoiled", data))
        requests = models.create_requests(session, data, "program_bytes")
        answer = caller.call(NETWORK + "CreateNetwork", *requests, timeout=20.0)
        scene.require_documented(f"{attempt}: program", answer)
    scene.require_quiet_log("models")
    caller.close()
