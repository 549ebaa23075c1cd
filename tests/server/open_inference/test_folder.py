# SPDX-License-Identifier: Apache-2.0
"""The operator's folder of models: layouts, versions, configurations, loads by name."""

from pathlib import Path

import numpy as np
import pytest
from nnpa.oip import open_inference_grpc_pb2 as pb

from tests.server.onnx_models import (
    binary,
    offering,
    refusal,
    request,
)
from tests.server.open_inference.test_repository import DIV, ROW, wait_ready


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def test_folder_in_both_layouts(tmp_path: Path) -> None:
    """A folder's files and model directories are loaded at start; the newest version answers."""
    _write(tmp_path / "div.onnx", DIV)
    _write(tmp_path / "ops/1/model.onnx", DIV)
    _write(tmp_path / "ops/10/model.onnx", binary("Mul", ("n", 4)))
    _write(tmp_path / "ops/9/model.onnx", binary("Add", ("n", 4)))
    _write(tmp_path / "broken.onnx", b"no model")
    _write(tmp_path / "notes.txt", b"not a model")
    _write(tmp_path / "no model/readme", b"nor here")
    with offering(folder=tmp_path) as (_, caller):
        wait_ready(caller)
        assert caller.states() == {"broken": "UNAVAILABLE", "div": "READY", "ops": "READY"}
        assert np.array_equal(caller.infer("ops", x=ROW, y=ROW)["z"], ROW * ROW)
        metadata = caller.stub.ModelMetadata(pb.ModelMetadataRequest(name="ops"))
        assert list(metadata.versions) == ["10"]
        index = caller.stub.RepositoryIndex(pb.RepositoryIndexRequest(ready=True))
        assert [(entry.name, entry.version) for entry in index.models] == [
            ("div", "1"),
            ("ops", "10"),
        ]
        broken = request("broken", x=ROW, y=ROW)
        assert "not an ONNX model" in refusal("MODEL_UNAVAILABLE", caller.stub.ModelInfer, broken)


@pytest.mark.parametrize(
    ("policy", "versions"),
    [
        ("latest { num_versions: 2 }", ["2", "10"]),
        ("all {}", ["1", "2", "10"]),
        ("specific { versions: [1, 2] }", ["1", "2"]),
    ],
)
def test_version_policies(tmp_path: Path, policy: str, versions: list[str]) -> None:
    """A configuration's policy says which versions are offered; each answers by its number."""
    for version, op in (("1", "Add"), ("2", "Mul"), ("10", "Sub")):
        _write(tmp_path / "ops" / version / "net.onnx", binary(op, ("n", 4)))
    text = f'name: "ops" backend: "onnxruntime" max_batch_size: 8 version_policy {{ {policy} }}'
    text += ' default_model_filename: "net.onnx" dynamic_batching { }'
    text += ' parameters { key: "machine" value { string_value: "z16" } }'
    _write(tmp_path / "ops/config.pbtxt", text.encode())
    results = {"1": ROW + ROW, "2": ROW * ROW, "10": ROW - ROW}
    with offering(folder=tmp_path) as (_, caller):
        wait_ready(caller)
        metadata = caller.stub.ModelMetadata(pb.ModelMetadataRequest(name="ops"))
        assert list(metadata.versions) == versions
        assert caller.facts("ops")["machine"] == "telum1"
        for version, expected in results.items():
            message = request("ops", x=ROW, y=ROW)
            message.model_version = version
            if version in versions:
                answer = caller.stub.ModelInfer(message)
                assert answer.model_version == version
                assert answer.raw_output_contents[0] == expected.tobytes()
            else:
                refusal("MODEL_NOT_FOUND", caller.stub.ModelInfer, message)


def test_a_name_of_the_folder_is_loaded_again(tmp_path: Path) -> None:
    """Load by name reads the folder anew; what left it is not found, what came is offered."""
    _write(tmp_path / "a.onnx", DIV)
    with offering(folder=tmp_path) as (_, caller):
        wait_ready(caller)
        _write(tmp_path / "a.onnx", binary("Mul", ("n", 4)))
        _write(tmp_path / "b.onnx", DIV)
        assert caller.states() == {"a": "READY", "b": "UNAVAILABLE"}
        for name in "ab":
            caller.stub.RepositoryModelLoad(pb.RepositoryModelLoadRequest(model_name=name))
        assert np.array_equal(caller.infer("a", x=ROW, y=ROW)["z"], ROW * ROW)
        assert np.array_equal(caller.infer("b", x=ROW, y=ROW)["z"], np.ones_like(ROW))
        for name in ("c", "../a", "a.onnx", "/etc/passwd"):
            message = pb.RepositoryModelLoadRequest(model_name=name)
            refusal("MODEL_NOT_FOUND", caller.stub.RepositoryModelLoad, message)


@pytest.mark.parametrize(
    "text", ["{", 'name: "x"', 'default_model_filename: "../../a.onnx"', 'platform: "keras"']
)
def test_bad_configurations(tmp_path: Path, text: str) -> None:
    """A folder's model whose configuration is no good is listed with the reason."""
    _write(tmp_path / "ops/1/model.onnx", DIV)
    _write(tmp_path / "ops/config.pbtxt", text.encode())
    with offering(folder=tmp_path) as (_, caller):
        wait_ready(caller)
        (entry,) = caller.stub.RepositoryIndex(pb.RepositoryIndexRequest()).models
        assert entry.state == "UNAVAILABLE"
        assert "config" in entry.reason
