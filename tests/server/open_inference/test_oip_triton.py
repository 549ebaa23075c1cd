# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's Triton client, unmodified, with a server process."""

import importlib.util
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from nnpa.oip import open_inference_grpc_pb2 as pb
from nnpa.oip.open_inference_grpc_pb2_grpc import GRPCInferenceServiceStub

from tests.server.onnx_models import TYPES, binary, identity, text_model
from tests.server.process import serving

ROOT = Path(__file__).parents[3]
SESSION = "tests.server.open_inference.oip_triton_session"
pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("tritonclient") is None,
    reason="tritonclient is not installed: it needs protobuf 6, and this environment has another",
)
CHAPTERS = (
    "health", "metadata", "infer", "datatypes", "text", "asynchronous", "stream", "repository",
    "errors", "large", "warnings", "memory",
)  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A server process with a folder of models: its address, and the folder."""
    folder = tmp_path_factory.mktemp("models")
    models = {"add": binary("Add", ("n", 4)), "mul": binary("Mul", ("n", 4))}
    models |= {"div": binary("Div", ("n", 4)), "text": text_model()}
    models |= {f"id_{name}": identity(name) for name in TYPES}
    for name, data in models.items():
        (folder / f"{name}.onnx").write_bytes(data)
    shared = ("--shared-memory", "--shared-memory-over-tcp")
    flags = ("--listen", "127.0.0.1:0", "--models", str(folder), *shared)
    with serving(tmp_path_factory.mktemp("log"), *flags) as server:
        _wait_ready(server.address)
        yield server.address, folder


def _wait_ready(address: str) -> None:
    until = time.monotonic() + 120
    with grpc.insecure_channel(address) as channel:
        stub = GRPCInferenceServiceStub(channel)
        while not stub.ServerReady(pb.ServerReadyRequest()).ready:
            assert time.monotonic() < until
            time.sleep(0.05)


def _run(*arguments: str) -> str:
    """Run Python in a process of its own; return what it prints."""
    done = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=300,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "chapter",
    [CHAPTERS[0], *(pytest.param(name, marks=pytest.mark.heavy) for name in CHAPTERS[1:])],
)
def test_every_chapter_of_the_session(place: tuple[str, Path], chapter: str) -> None:
    """Every chapter of the session is answered as the client's documentation says."""
    address, folder = place
    finished = _run(
        "-m", "tests.server.open_inference.oip_triton_session", address, str(folder), chapter
    )
    assert finished.startswith(f"=== {chapter}")
    assert finished.count("\n> ") > 0


def test_every_chapter_is_played() -> None:
    """The tests play every chapter of the session."""
    text = "from tests.server.open_inference.oip_triton_session import CHAPTERS; print(*CHAPTERS)"
    assert _run("-c", text).split() == list(CHAPTERS)


@pytest.mark.parametrize("first", ["nnpa_client", "tritonclient.grpc"])
def test_both_clients_share_a_process(first: str) -> None:
    """Our client and the official one can be imported into one process, in either order."""
    second = {"nnpa_client": "tritonclient.grpc", "tritonclient.grpc": "nnpa_client"}[first]
    imports = "from nnpa_client import inference; from nnpa_tools.commands import demo"
    text = f"import {first}, {second}; {imports}; print('both')"
    assert _run("-W", "error", "-c", text) == "both\n"


FIELDS = """
from importlib.resources import files
from google.protobuf import descriptor_pb2, descriptor_pool
from tritonclient.grpc import model_config_pb2, service_pb2

OURS = {
    "ModelMetadataResponse": {"properties"},
    "RepositoryModelLoadResponse": {"model_name", "isLoaded"},
    "RepositoryModelUnloadResponse": {"model_name", "isUnloaded"},
}
published = dict(service_pb2.DESCRIPTOR.message_types_by_name)
published |= model_config_pb2.DESCRIPTOR.message_types_by_name
enums = model_config_pb2.DESCRIPTOR.enum_types_by_name
data = (files("nnpa.oip") / "open_inference_grpc.binpb").read_bytes()
pool = descriptor_pool.DescriptorPool()
for file in descriptor_pb2.FileDescriptorSet.FromString(data).file:
    pool.Add(file)
ours = pool.FindFileByName("nnpa/oip/open_inference_grpc.proto")

def kind(field):
    named = field.message_type or field.enum_type
    return field.number, field.type, field.is_repeated, named.full_name if named else ""

def compare(mine, theirs):
    for name, field in mine.fields_by_name.items():
        if name not in OURS.get(mine.name, ()):
            assert kind(field) == kind(theirs.fields_by_name[name]), (mine.full_name, name)
    for name, nested in mine.nested_types_by_name.items():
        if name != "PropertiesEntry":
            compare(nested, theirs.nested_types_by_name[name])

for name, message in ours.message_types_by_name.items():
    compare(message, published[name])
    if name in service_pb2.DESCRIPTOR.message_types_by_name:
        missing = set(published[name].fields_by_name) - set(message.fields_by_name)
        assert not missing, (name, missing)
for name, enum in ours.enum_types_by_name.items():
    assert enum.values_by_name.keys() == enums[name].values_by_name.keys()
    for value in enum.values:
        assert enums[name].values_by_name[value.name].number == value.number
service = ours.services_by_name["GRPCInferenceService"]
theirs = service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"]
assert service.full_name == theirs.full_name
for method in theirs.methods:
    mine = service.methods_by_name[method.name]
    assert mine.input_type.full_name == method.input_type.full_name
    assert mine.output_type.full_name == method.output_type.full_name
    assert mine.client_streaming == method.client_streaming
print(len(ours.message_types_by_name), len(service.methods))
"""


def test_the_protocol_is_the_published_one() -> None:
    """Messages, fields, numbers, types and methods equal the official client's."""
    messages, methods = map(int, _run("-c", FIELDS).split())
    assert messages > 50
    assert methods == 20
