# SPDX-License-Identifier: Apache-2.0
"""The public face of the package."""

import ast
import inspect
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import nnpa_client
import pytest
from nnpa.zdnn.v1.accelerator_pb2 import (
    ReadTensorHeader,
    ReadTensorResponse,
    WriteTensorHeader,
    WriteTensorRequest,
)
from nnpa_client._server.shortcuts.out_of_band_arrays import parse_download, serialize_upload
from nnpa_client._server.shortcuts.wrapper import TransportWrapper
from nnpa_client._server.transport import GrpcTransport, Transport

SOURCES = sorted(
    path
    for path in Path(nnpa_client.__file__).parent.rglob("*.py")
    if "shipped" not in path.parts  # suites of the score are programs, and no modules of it
)


def test_all_is_sorted_and_complete() -> None:
    """`__all__` is sorted, and everything in it exists and is documented."""
    names = nnpa_client.__all__
    assert names == sorted(names, key=lambda name: (not name[0].isupper(), name))
    for name in names:
        value = getattr(nnpa_client, name)
        assert isinstance(value, str) or inspect.getdoc(value), name


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_only_config_reads_the_environment(path: Path) -> None:
    """No module but config mentions the environment."""
    words = {
        node.attr
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
    }
    assert path.stem == "config" or not words & {"environ", "getenv"}


def test_the_seam_is_whole() -> None:
    """The gRPC transport and each shortcut have every method of the seam, alike."""
    methods = {name: method for name, method in vars(Transport).items() if name[0] != "_"}
    calls = {"unary", "send_stream", "receive_stream", "hold"}
    assert methods.keys() == {"target", "ticket", "close"} | calls
    for name, method in methods.items():
        if callable(method):
            expected = list(inspect.signature(method).parameters)
            for kind in (GrpcTransport, *all_subclasses(TransportWrapper)):
                assert list(inspect.signature(getattr(kind, name)).parameters) == expected, kind


def all_subclasses(kind: type) -> set[type]:
    """Return a class and all classes that derive from it."""
    return {kind}.union(*map(all_subclasses, kind.__subclasses__()))


@pytest.mark.parametrize("size", [1, 127, 128, 16383, 16384, 1 << 20])
def test_chunks_are_what_protobuf_writes(size: int) -> None:
    """A chunk framed by hand is the message that protobuf would make, both ways."""
    data = bytes(range(256)) * (size // 256 + 1)
    chunk = data[:size]
    written = serialize_upload(memoryview(chunk))
    assert written == WriteTensorRequest(chunk=chunk).SerializeToString()
    read = parse_download(ReadTensorResponse(chunk=chunk).SerializeToString())
    assert isinstance(read, memoryview)
    assert read == chunk


def test_headers_are_messages() -> None:
    """Headers, and messages that are no plain chunks, go through protobuf."""
    header = WriteTensorRequest(header=WriteTensorHeader(session="sessions/x"))
    assert WriteTensorRequest.FromString(serialize_upload(header)) == header
    answer = ReadTensorResponse(header=ReadTensorHeader(total_bytes=5))
    assert parse_download(answer.SerializeToString()) == answer
    twice = ReadTensorResponse(chunk=b"ab").SerializeToString() * 2
    assert parse_download(twice) == ReadTensorResponse(chunk=b"ab")


_IMPORT_EACH_FIRST = """
import importlib, sys, types
for name in sys.argv[2:]:
    for loaded in [one for one in sys.modules if one.split(".")[0] == "nnpa_client"]:
        del sys.modules[loaded]
    package = types.ModuleType("nnpa_client")
    package.__path__, package.__version__ = [sys.argv[1]], "0"
    sys.modules["nnpa_client"] = package
    importlib.import_module(name)
"""


@pytest.mark.heavy
def test_no_module_depends_on_import_order() -> None:
    """Every module can be the first of the package that is imported: there is no cycle."""
    root = Path(nnpa_client.__file__).parent
    absent = {"torch"} if find_spec("torch") is None else set[str]()
    names = [
        ".".join(("nnpa_client", *path.relative_to(root).with_suffix("").parts))
        for path in SOURCES
        if path.stem != "__init__" and path.parent.name not in absent
    ]
    command = [sys.executable, "-c", _IMPORT_EACH_FIRST, str(root), *names]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
