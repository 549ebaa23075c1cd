# SPDX-License-Identifier: Apache-2.0
"""`nnpa network generate`: the weights that it reads from an ONNX file, and the C files."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from nnpa.network.v1 import network_pb2 as pb
from nnpa_tools.cli import main
from nnpa_tools.models.generate import rows
from nnpa_tools.models.onnx_weights import weights_of
from onnx import TensorProto, helper, numpy_helper

from tests.network.small_models import BIAS, WEIGHT, dense

VALUES = (0, 1, 100)
TYPES = [TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16,
         TensorProto.INT8, TensorProto.UINT8, TensorProto.INT16, TensorProto.UINT16,
         TensorProto.INT32, TensorProto.UINT32, TensorProto.INT64, TensorProto.UINT64,
         TensorProto.BOOL]  # fmt: skip


def _file(tensor: TensorProto, nbytes: int) -> tuple[bytes, pb.NetworkReport]:
    graph = helper.make_graph([], "weights", [], [], [tensor])
    report = pb.NetworkReport(weights=[pb.WeightTensor(name=tensor.name, nbytes=nbytes)])
    return helper.make_model(graph).SerializeToString(), report


@pytest.mark.parametrize("kind", TYPES, ids=TensorProto.DataType.Name)
@pytest.mark.parametrize("raw", [False, True], ids=["fields", "raw"])
def test_weights_equal_onnx_s_reading(kind: int, raw: bool) -> None:
    """The weights of every type, in either storage, equal the onnx package's reading."""
    values: Any = [bool(value) for value in VALUES] if kind == TensorProto.BOOL else VALUES
    plain = helper.make_tensor("w", kind, [3], values)
    array = numpy_helper.to_array(plain)
    tensor = numpy_helper.from_array(array, "w") if raw else plain
    assert tensor.HasField("raw_data") == raw
    assert list(weights_of(*_file(tensor, array.nbytes))) == [array.tobytes()]


def test_weights_of_another_file() -> None:
    """A file with other weights than the network's is refused, with name and sizes."""
    model, report = _file(numpy_helper.from_array(np.zeros(3, np.float32), "w"), 16)
    with pytest.raises(ValueError, match="weight w: 12 bytes of w, expected 16 bytes"):
        list(weights_of(model, report))


def test_rows_hold_twelve_bytes() -> None:
    """Bytes become a C array of twelve per row."""
    assert rows(bytes(range(13))).splitlines()[1] == "  0x0c"
    assert rows(b"\x00\xff") == "  0x00, 0xff"


def test_five_files_are_written(server_target: str, tmp_path: Path) -> None:
    """The five files are written under the network's name, with the model's weights."""
    path = tmp_path / "dense.onnx"
    path.write_bytes(dense().SerializeToString())
    command = ["network", "generate", str(path), "--name", "tiny", "--target", server_target]
    result = CliRunner().invoke(main, [*command, "--output", str(tmp_path / "c")])
    assert result.exit_code == 0, result.output
    names = {file.name for file in (tmp_path / "c").iterdir()}
    assert names == {f"tiny{end}" for end in (".h", ".c", "_data.h", "_data.c", "_config.h")}
    assert rows(WEIGHT.tobytes() + BIAS.tobytes()) in (tmp_path / "c/tiny_data.c").read_text()
    assert "#define AI_TINY_DATA__WEIGHTS_SIZE" in (tmp_path / "c/tiny_data.h").read_text()
