# SPDX-License-Identifier: Apache-2.0
"""Third-party inference servers, each in an environment of its own, created on demand.

`poe bench --peers` creates them once in ~/.cache/nnpa-bench; some hundred MB each. Every server has
one model, `add`, which returns the sum of two FP32 tensors as its SDK's documentation shows it.
"""

import json
import os
import subprocess
import sys
import venv
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path

import click

_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nnpa-bench"

_MLSERVER_MODEL = """
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceResponse

class Add(MLModel):
    async def load(self):
        return True

    async def predict(self, payload):
        x, y = (NumpyCodec.decode_input(one) for one in payload.inputs)
        return InferenceResponse(
            model_name=self.name, outputs=[NumpyCodec.encode_output("z", x + y)]
        )
"""

_KSERVE_SERVER = """
import sys
from kserve import InferOutput, InferResponse, Model, ModelServer

class Add(Model):
    def __init__(self):
        super().__init__("add")
        self.ready = True

    async def predict(self, payload, headers=None, response_headers=None):
        x, y = (one.as_numpy() for one in payload.inputs)
        output = InferOutput("z", list(x.shape), "FP32")
        output.set_data_from_numpy(x + y, binary_data=True)
        return InferResponse(payload.id or "0", "add", [output])

http, grpc = map(int, sys.argv[1:])
ModelServer(http_port=http, grpc_port=grpc, enable_grpc=True, workers=1).start([Add()])
"""


@dataclass(frozen=True, slots=True)
class Peer:
    """A server: its name, and the packages that it needs, versions pinned."""

    name: str
    packages: tuple[str, ...]


# uvloop 0.23 leaves MLServer 1.7.1's workers without an event loop.
MLSERVER = Peer("MLServer", ("mlserver==1.7.1", "uvloop==0.21.0"))
KSERVE = Peer("KServe", ("kserve==0.21.0",))


@cache
def environment(peer: Peer) -> Path:
    """Return the interpreter of a peer's environment; create the environment if it is missing."""
    mark = sha256(repr((peer.packages, sys.version)).encode()).hexdigest()[:8]
    place = _CACHE / f"{peer.name.lower()}-{mark}"
    python, done = place / "bin" / "python", place / "complete"
    if not done.exists():
        click.echo(f"making {place}: {' '.join(peer.packages)}", err=True)
        venv.create(place, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "-q", *peer.packages], check=True)
        done.touch()
    return python


def mlserver(folder: Path, http: int, grpc: int, workers: int | None) -> list[str]:
    """Write MLServer's files into a folder; return the command that starts it.

    `workers` 0 runs models in the server's own process; None is MLServer's default.
    """
    folder.mkdir(parents=True)
    settings: dict[str, object] = {
        "host": "127.0.0.1",
        "http_port": http,
        "grpc_port": grpc,
        "metrics_endpoint": None,
        "debug": False,
    }
    if workers is not None:
        settings["parallel_workers"] = workers
    (folder / "settings.json").write_text(json.dumps(settings))
    model = {"name": "add", "implementation": "peer_model.Add"}
    (folder / "model-settings.json").write_text(json.dumps(model))
    (folder / "peer_model.py").write_text(_MLSERVER_MODEL)
    return [str(environment(MLSERVER).parent / "mlserver"), "start", str(folder)]


def kserve(folder: Path, http: int, grpc: int) -> list[str]:
    """Write KServe's server into a folder; return the command that starts it."""
    folder.mkdir(parents=True)
    (folder / "peer_server.py").write_text(_KSERVE_SERVER)
    python = str(environment(KSERVE))
    return [python, str(folder / "peer_server.py"), str(http), str(grpc)]
