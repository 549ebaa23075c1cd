# SPDX-License-Identifier: Apache-2.0
"""External data of ONNX files: what is read beside a model, and what never is."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from nnpa_client import Session, TransportError
from nnpa_files.external_data import ExternalDataError, read_model
from nnpa_tools.cli import main
from onnx import TensorProto, helper, numpy_helper

from tests.network.small_models import dense, dense_reference

X = np.array([[1, 2, 3, 4], [-1, 0.5, 2, -3]], np.float32)


def _saved(folder: Path) -> Path:
    """Save the dense model as exporters do, all initializers in a file beside it."""
    path = folder / "dense.onnx"
    beside = "dense.onnx.data"
    onnx.save(dense(), path, save_as_external_data=True, location=beside, size_threshold=0)
    assert (folder / "dense.onnx.data").stat().st_size >= 60
    return path


def _tensor(name: str) -> TensorProto:
    return numpy_helper.from_array(np.arange(3, dtype=np.float32) + len(name), name)


def _sparse(name: str) -> onnx.SparseTensorProto:
    indices = numpy_helper.from_array(np.arange(3, dtype=np.int64), f"{name} indices")
    return helper.make_sparse_tensor(_tensor(name), indices, [9])


def _everywhere() -> onnx.ModelProto:
    """Return a model with tensors at each place that onnx.proto3 has for one."""
    inner = helper.make_graph([], "inner", [], [], [_tensor("in a graph")])
    node = helper.make_node("Any", ["x"], ["y"], single=_tensor("t"), many=[_tensor("many")],
                            sparse=_sparse("sparse"), graph=inner, graphs=[inner])  # fmt: skip
    node.attribute.add(
        name="several", type=onnx.AttributeProto.SPARSE_TENSORS, sparse_tensors=[_sparse("s")]
    )
    empty = TensorProto(name="empty", data_type=TensorProto.FLOAT, dims=[0])
    graph = helper.make_graph([node], "outer", [], [], [_tensor("weight"), empty])
    graph.sparse_initializer.append(_sparse("sparse initializer"))
    function = helper.make_function("own", "f", ["a"], ["b"], [node], [helper.make_opsetid("", 20)])
    function.attribute_proto.append(helper.make_attribute("default", _tensor("of a function")))
    whole = helper.make_model(graph, functions=[function], producer_name="somebody")
    whole.training_info.add(initialization=inner, algorithm=inner)
    return whole


def _all_tensors(message: Any) -> Iterator[TensorProto]:
    if isinstance(message, TensorProto):
        yield message
        return
    for field, value in message.ListFields():
        if field.message_type is not None:
            for child in [value] if hasattr(value, "ListFields") else value:
                yield from _all_tensors(child)


def _externalised(whole: onnx.ModelProto, path: Path) -> int:
    """Write a model whose every tensor is in a file beside it; return how many there are."""
    model, data, count = onnx.ModelProto(), bytearray(), 0
    model.CopyFrom(whole)
    for count, tensor in enumerate(_all_tensors(model), 1):
        entries = {"location": "weights/all.bin", "offset": len(data)}
        if count % 2:
            entries["length"] = len(tensor.raw_data)
        data += tensor.raw_data
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in entries.items():
            tensor.external_data.add(key=key, value=str(value))
    (path.parent / "weights").mkdir()
    (path.parent / "weights/all.bin").write_bytes(data)
    path.write_bytes(model.SerializeToString())
    return count


def test_tensors_at_any_depth(tmp_path: Path) -> None:
    """A model that is read equals the one whose tensors were moved out, wherever they are."""
    whole, path = _everywhere(), tmp_path / "m.onnx"
    assert _externalised(whole, path) == 23
    assert onnx.ModelProto.FromString(read_model(path)) == whole


@pytest.mark.parametrize("kind", sorted(set(TensorProto.DataType.values()) - {0, 8, 27, 28}))
def test_elements_of_any_type(tmp_path: Path, kind: int) -> None:
    """A tensor of each element type, an odd number of elements, has the bytes that onnx writes."""
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    whole = helper.make_graph([], "g", [], [], [
        numpy_helper.from_array(np.array([0, 1, 0, 1, 1], np.int8).astype(dtype), "w")
    ])  # fmt: skip
    path = tmp_path / "m.onnx"
    model = helper.make_model(whole)
    onnx.save(model, path, save_as_external_data=True, location="w.bin", size_threshold=0)
    assert (tmp_path / "w.bin").exists()
    read = onnx.ModelProto.FromString(read_model(path)).graph.initializer[0]
    assert (read.data_location, len(read.external_data)) == (TensorProto.DEFAULT, 0)
    assert read.raw_data == onnx.load(path).graph.initializer[0].raw_data != b""


def test_files_without_external_data_are_unchanged(tmp_path: Path) -> None:
    """A file that is whole, or no model at all, is returned byte for byte."""
    path = tmp_path / "m.onnx"
    for data in (_everywhere().SerializeToString(), b"", b"location of no model"):
        path.write_bytes(data)
        assert read_model(path) == data


def _refer(folder: Path, **entries: object) -> Path:
    """Write a model of one tensor of 12 bytes that refers to a file by entries."""
    tensor = TensorProto(
        name="w", data_type=TensorProto.FLOAT, dims=[3], data_location=TensorProto.EXTERNAL
    )
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=str(value))
    path = folder / "m.onnx"
    graph = helper.make_graph([], "g", [], [], [tensor])
    path.write_bytes(helper.make_model(graph).SerializeToString())
    return path


def _link(folder: Path) -> None:
    (folder / "link.bin").symlink_to(folder.parent / "secret.bin")


def _linked_folder(folder: Path) -> None:
    (folder / "sub").symlink_to(folder.parent)


def _hard_link(folder: Path) -> None:
    os.link(folder.parent / "secret.bin", folder / "hard.bin")


def _loop(folder: Path) -> None:
    (folder / "loop.bin").symlink_to(folder / "loop.bin")


def _pipe(folder: Path) -> None:
    os.mkfifo(folder / "pipe.bin")


REFUSED: dict[str, tuple[Callable[[Path], None] | None, dict[str, object], str]] = {
    "above": (None, {"location": "../secret.bin"}, "must be in the model's folder"),
    "root": (None, {"location": "/etc/passwd"}, "must be in the model's folder"),
    "link": (_link, {"location": "link.bin"}, "must be in the model's folder"),
    "linked folder": (_linked_folder, {"location": "sub/secret.bin"}, "must be in the model's"),
    "hard link": (_hard_link, {"location": "hard.bin"}, "regular file without hard links"),
    "loop": (_loop, {"location": "loop.bin"}, "'loop.bin': (no name|Too many levels)"),
    "pipe": (_pipe, {"location": "pipe.bin"}, "must be a regular file"),
    "folder": (None, {"location": "."}, "Is a directory"),
    "no location": (None, {"offset": 0, "comment": "location"}, "Is a directory"),
    "zero byte": (None, {"location": "w\0.bin"}, "no name of a file"),
    "missing": (None, {"location": "gone.bin"}, "'gone.bin': No such file"),
    "short": (None, {"location": "w.bin", "offset": 5}, "bytes 5 to 17, .* the file's 16"),
    "far": (None, {"location": "w.bin", "offset": 10**18}, "bytes 10.* the file's 16"),
    "negative": (None, {"location": "w.bin", "offset": -4}, "offset is '-4', must be a number"),
    "digits": (None, {"location": "w.bin", "offset": "9" * 5000}, "offset is '9{20}', must"),
    "length": (None, {"location": "w.bin", "length": 16}, "length is 16, must be 12, .*dims"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_refused(tmp_path: Path, kind: str) -> None:
    """Nothing outside of the model's folder is read, nor what a tensor's dims do not take."""
    prepare, entries, reason = REFUSED[kind]
    folder = tmp_path / "models"
    folder.mkdir()
    (tmp_path / "secret.bin").write_bytes(bytes(16))
    (folder / "w.bin").write_bytes(bytes(16))
    if prepare is not None:
        prepare(folder)
    with pytest.raises(ExternalDataError, match=f"tensor 'w'.*{reason}"):
        read_model(_refer(folder, **entries))


def test_links_inside_of_the_folder(tmp_path: Path) -> None:
    """A link that stays in the folder is read, as volumes of Kubernetes have them."""
    (tmp_path / "..2026").mkdir()
    (tmp_path / "..2026/w.bin").write_bytes(bytes(16))
    (tmp_path / "..data").symlink_to("..2026")
    (tmp_path / "w.bin").symlink_to("..data/w.bin")
    assert bytes(12) in read_model(_refer(tmp_path, location="w.bin", offset=4))


def test_the_whole_is_bounded(tmp_path: Path) -> None:
    """Tensors that share a file count each; the sum is refused before any is read."""
    tensors = [
        TensorProto(
            name=f"w{index}", data_type=1, dims=[1 << 28], data_location=TensorProto.EXTERNAL
        )
        for index in range(2)
    ]
    for tensor in tensors:
        tensor.external_data.add(key="location", value="never-opened.bin")
    path = tmp_path / "m.onnx"
    graph = helper.make_graph([], "g", [], [], tensors)
    path.write_bytes(helper.make_model(graph).SerializeToString())
    with pytest.raises(ExternalDataError, match=r"21474\d{5} bytes, must be at most 2147483647"):
        read_model(path)
    with pytest.raises(ExternalDataError, match=r"must be at most 1000$"):
        read_model(path, 1000)


def test_a_session_loads_a_path(session: Session, tmp_path: Path) -> None:
    """A session loads the path of a model with external data; bytes of such are refused."""
    path = _saved(tmp_path)
    with session.load(path) as net, session.load(str(path)) as same:
        np.testing.assert_allclose(net(X), dense_reference(X), rtol=0.01)
        assert net.model_signature == same.model_signature
    remedy = "external data is refused: load the path .*save_as_external_data=False"
    with pytest.raises(TransportError, match=remedy):
        session.load(path.read_bytes())


COMMANDS = {
    "analyze": ("network", "analyze"),
    "probe": ("network", "probe", "--size", "1"),
    "validate": ("network", "validate", "--samples", "2"),
    "estimate": ("estimate", "--machine", "z17"),
}


@pytest.mark.heavy
@pytest.mark.parametrize("command", [*COMMANDS, "validate here"])
def test_commands(server_target: str, tmp_path: Path, command: str) -> None:
    """A command gives the same over a model with external data and over the whole one."""
    words = COMMANDS[command.removesuffix(" here")]
    place = ("--jobs", "1") if command.endswith("here") else ("--target", server_target)
    whole = tmp_path / "whole.onnx"
    whole.write_bytes(dense().SerializeToString())
    reports = []
    for path in (_saved(tmp_path), whole):
        result = CliRunner().invoke(main, [*words, "--json", str(path), *place])
        assert result.exit_code == 0, result.output
        reports.append(_lasting(json.loads(result.stdout)))
    assert reports[0] == reports[1]


def _lasting(document: Any) -> Any:
    """Return a report without dates, times and what the file is called."""
    if isinstance(document, dict):
        return {
            key: _lasting(value)
            for key, value in document.items()
            if key not in ("about", "date_time", "file", "hash", "seconds", "signature", "workers")
        }
    return [_lasting(value) for value in document] if isinstance(document, list) else document


def test_generate(server_target: str, tmp_path: Path) -> None:
    """C of a model with external data has its weights."""
    words = ["network", "generate", str(_saved(tmp_path)), "--output", str(tmp_path / "c")]
    result = CliRunner().invoke(main, [*words, "--target", server_target])
    assert result.exit_code == 0, result.output
    assert "network_data.c" in result.output


def test_a_command_names_the_file(server_target: str, tmp_path: Path) -> None:
    """A command says which tensor's data are missing, by exit code 2."""
    path = _saved(tmp_path)
    (tmp_path / "dense.onnx.data").unlink()
    words = ["network", "analyze", str(path), "--target", server_target]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 2
    assert "external data 'dense.onnx.data': No such file" in result.output
