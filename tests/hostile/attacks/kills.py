# SPDX-License-Identifier: Apache-2.0
"""Servers that are killed while they keep models: row 14, which needs `--state`."""

import os
import random
import threading
from dataclasses import dataclass, field

import numpy as np
from nnpa.oip import open_inference_grpc_pb2 as oip

from tests.hostile import models
from tests.hostile.calls import INFERENCE, Caller
from tests.hostile.scene import Scene, row
from tests.hostile.target import Server

KILLS = int(os.environ.get("NNPA_KILLS", "10"))
NAMES = tuple(f"kept{number}" for number in range(6))
OPERATORS = ("Relu", "Neg", "Abs")
ROW = np.array([[-1.0, 2.0, -3.0, 4.0]], np.float32)
RESULTS = {
    operator: array.tobytes()
    for operator, array in zip(OPERATORS, (np.maximum(ROW, 0), -ROW, np.abs(ROW)), strict=True)
}
READY_TIMEOUT, LOAD_TIMEOUT, PUBLISH_TIMEOUT = 60.0, 10.0, 20.0


@dataclass
class _Kept:
    """Models that a server must have after a kill: published names, and each one's operators."""

    operators: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    published: set[str] = field(default_factory=set[str])


class _Publisher(threading.Thread):
    """Loads models over each other until its server is gone."""

    def __init__(self, server: Server, kept: _Kept, chooser: random.Random) -> None:
        super().__init__(daemon=True)
        self._server, self._kept, self._chooser = server, kept, chooser
        self.published = threading.Event()

    def run(self) -> None:
        """Load until a call fails."""
        caller, kept = Caller(self._server.address), self._kept
        while True:
            name, operator = self._chooser.choice(NAMES), self._chooser.choice(OPERATORS)
            kept.operators.setdefault(name, set()).add(operator)
            if not models.load(caller, name, models.harmless(operator), timeout=LOAD_TIMEOUT).is_ok:
                break
            kept.operators[name] = {operator}
            kept.published.add(name)
            self.published.set()
        caller.close()


def _result(caller: Caller, name: str) -> tuple[str, bytes]:
    """Run a model once; return how that ended, and its output."""
    request = oip.ModelInferRequest(model_name=name, raw_input_contents=[ROW.tobytes()])
    request.inputs.add(name="x", datatype="FP32", shape=ROW.shape)
    answer = caller.call(INFERENCE + "ModelInfer", request)
    if not answer.messages:
        return answer.name, b""
    return answer.name, answer.read(oip.ModelInferResponse).raw_output_contents[0]


def _wait_until_ready(caller: Caller, scene: Scene) -> None:
    """Wait until the server says that it has loaded its saved models."""
    for _ in range(int(READY_TIMEOUT / 0.1)):
        answer = caller.call(INFERENCE + "ServerReady", oip.ServerReadyRequest())
        if answer.messages and answer.read(oip.ServerReadyResponse).ready:
            return
        scene.stay(0.1)
    scene.require(False, f"the server was not ready after {READY_TIMEOUT:g} s")


def _require_kept(scene: Scene, caller: Caller, kept: _Kept) -> None:
    """Require every published model, and of each model one of its allowed operators."""
    for name, operators in sorted(kept.operators.items()):
        end, result = _result(caller, name)
        is_right = result in (RESULTS[operator] for operator in operators)
        is_lost = name in kept.published and end != "OK"
        scene.require(not is_lost, f"{name} was published, and is {end}")
        scene.require(is_right or end == "MODEL_NOT_FOUND", f"{name} is half there: {end}")


@row("14", f"kill -9 while models are published, {KILLS} times, with --state", bystander=False)
def kill_while_publishing(scene: Scene) -> None:
    """After a kill every published model is complete, and no model is incomplete."""
    if not scene.offers("--state"):
        scene.require(False, "the build has no --state: nothing stays")
        return
    folder, kept, chooser = str(scene.folder / "kept"), _Kept(), random.Random(1)
    for _ in range(KILLS):
        server = scene.start("--state", folder)
        caller = scene.caller()
        _wait_until_ready(caller, scene)
        _require_kept(scene, caller, kept)
        publisher = _Publisher(server, kept, chooser)
        publisher.start()
        publisher.published.wait(PUBLISH_TIMEOUT)
        scene.stay(chooser.uniform(0.0, 2.0))
        server.kill()
        publisher.join()
        caller.close()
    scene.saw(f"{KILLS} kills, {len(kept.published)} models")
    scene.require(bool(kept.published), "no model was published before the kills")
