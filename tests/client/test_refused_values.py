# SPDX-License-Identifier: Apache-2.0
"""A value that an argument does not take is refused by name, value and expectation."""

import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from nnpa_client import NnpaError, Session, ZdnnError, ZdnnWarning, connect, mli, zdnn
from nnpa_client.faults import make_rule
from nnpa_client.mli import Options, export_case
from nnpa_client.networks.digits import MODEL_FILE
from nnpa_tools.cli import main

IMAGE: Any = np.ones((1, 8, 8, 4), np.float32)
VALUES: Any = np.ones(3, np.float32)
Argument = Any
"""An argument of a wrong type, which checkers would refuse."""

SCALARS: list[tuple[Callable[[Any, Any], object], Argument, str]] = [
    (
        lambda x, value: zdnn.maxpool2d(x, value, 2, 2, 2, 2),
        "SAME",
        "padding_type: 'SAME', expected one of VALID_PADDING, SAME_PADDING",
    ),
    (
        lambda x, value: zdnn.avgpool2d(x, value, 2, 2, 2, 2),
        1.5,
        "padding_type: 1.5, expected one of VALID_PADDING, SAME_PADDING",
    ),
    (
        lambda x, value: zdnn.conv2d(x, x, x, 0, 1, 1, value),
        "relu",
        "act_func: 'relu', expected one of CONV2D_ACT_NONE, CONV2D_ACT_RELU",
    ),
    (
        lambda x, value: zdnn.maxpool2d(x, 0, value, 2, 2, 2),
        -1,
        "kernel_height: -1, expected 0 to 4294967295",
    ),
    (
        lambda x, value: zdnn.maxpool2d(x, 0, 2, 2, value, 2),
        "2",
        "stride_height: '2', expected a whole number",
    ),
    (zdnn.relu, "6", "clipping_value: '6', expected a number"),
    (
        lambda x, value: zdnn.matmul_op(x, x, x, value),
        "add",
        "op_type: 'add', expected one of MATMUL_OP_ADDITION, MATMUL_OP_GREATER, ",
    ),
    (
        lambda x, value: zdnn.matmul_transpose_op(x, x, x, value, False),
        "yes",
        "transpose_a: 'yes', expected True or False",
    ),
    (
        lambda x, value: zdnn.softmax(x, None, value),
        "log",
        "act_func: 'log', expected one of SOFTMAX_ACT_NONE, SOFTMAX_ACT_LOG",
    ),
    (
        lambda x, value: zdnn.reduce(x, None, value),
        "max",
        "op_type: 'max', expected one of REDUCE_OP_MINIMUM, ",
    ),
    (
        zdnn.moments,
        "sample",
        "bessel_correction_type: 'sample', expected one of MOMENTS_BESSEL_POPULATION, ",
    ),
    (
        lambda x, value: zdnn.lstm(x, x, x, x, x, x, x, value),
        "forward",
        "direction: 'forward', expected one of FWD, BWD, BIDIR",
    ),
    (
        lambda x, value: zdnn.transform_quantized_ztensor(x, True, value, 127, IMAGE),
        "low",
        "clip_min: 'low', expected a whole number",
    ),
    (
        lambda x, value: zdnn.generate_quantized_transformed_desc(x.pre_transformed_desc, value),
        "INT8",
        "transform_type: 'INT8', expected a whole number",
    ),
    (
        lambda _, value: zdnn.get_max_limit(value, zdnn.FP32),
        "DLFLOAT",
        "transformed_type: 'DLFLOAT', expected one of ZDNN_DLFLOAT16, ",
    ),
    (
        lambda _, value: zdnn.init_pre_transformed_desc("2D", "FP32", 2, value),
        4.5,
        "dim1: 4.5, expected a whole number",
    ),
    (
        lambda _, value: zdnn.init_pre_transformed_desc(value, "FP32", 2),
        None,
        "layout: None, expected one of 1D, 2D, ",
    ),
    (
        lambda _, value: zdnn.is_nnpa_function_installed(1, value),
        "ADD",
        "function_codes: 'ADD', expected a whole number",
    ),
    (
        lambda _, value: zdnn.get_max_for_dim(value),
        "dim1",
        "dimension: 'dim1', expected a whole number",
    ),
]


@pytest.mark.parametrize(("call", "value", "says"), SCALARS)
def test_scalar_is_refused_by_name(
    session: Session, call: Callable[[Any, Any], object], value: Argument, says: str
) -> None:
    """The error for a scalar that a function of zDNN does not take names the C parameter."""
    with session:
        x = session.ztensor(IMAGE)
        with pytest.raises((TypeError, ValueError), match=f"^{re.escape(says)}"):
            call(x, value)


def test_enum_may_be_a_name_or_any_32_bits(session: Session) -> None:
    """An enum of a verb is zDNN's constant, its name, or any number of 32 bits."""
    x = session.ztensor(IMAGE)
    by_number = zdnn.maxpool2d(x, zdnn.SAME_PADDING, 2, 2, 2, 2)
    named: Any = "SAME_PADDING"
    assert np.array_equal(zdnn.maxpool2d(x, named, 2, 2, 2, 2).numpy(), by_number.numpy())
    with pytest.raises(ZdnnError, match="padding_type is 7"):
        zdnn.maxpool2d(x, 0xFFFFFFFF, 2, 2, 2, 2)


OPTIONS: list[tuple[dict[str, Argument], str]] = [
    ({"machine": 5}, "machine: 5, expected a name, JSON, its file, or a MachineSpec"),
    ({"library": 1.2}, "library: 1.2, expected text"),
    ({"precheck": "yes"}, "precheck: 'yes', expected True or False"),
    ({"status_diag": "all"}, "status_diag: 'all', expected a whole number"),
    ({"status_diag": 1 << 40}, "status_diag: 1099511627776, expected 0 to 4294967295"),
    ({"program_check": "ignore"}, "program_check: 'ignore', expected one of abort, status"),
    ({"log_level": "loud"}, "log_level: 'loud', expected one of off, fatal, error, "),
    ({"log_module": 3}, "log_module: 3, expected text"),
    ({"numerics": "fast"}, "numerics: 'fast', expected one of exact, jitter"),
    ({"jitter_seed": -1}, "jitter_seed: -1, expected 0 to 18446744073709551615"),
    ({"accumulate": "fp16"}, "accumulate: 'fp16', expected one of fp32, fp64"),
    ({"sanitize": "yes"}, "sanitize: 'yes', expected True or False"),
    ({"timeout": "5"}, "timeout: '5', expected seconds, 0 or more"),
    ({"connect_timeout": -1}, "connect_timeout: -1, expected seconds, 0 or more"),
    ({"wait": "long"}, "wait: 'long', expected seconds, 0 or more"),
    ({"plain": "foo"}, "plain: 'foo', expected some of stream, "),
    ({"token": "two\nlines"}, "token: not printable ASCII"),
]


@pytest.mark.parametrize(("options", "says"), OPTIONS, ids=[says for _, says in OPTIONS])
def test_option_of_connect_is_refused_by_name(
    server_target: str, options: dict[str, Argument], says: str
) -> None:
    """An option that `connect` does not take is refused by its own name, not a field's."""
    with pytest.raises((TypeError, ValueError), match=f"^{re.escape(says)}"):
        connect(server_target, **options)


def test_certificate_that_is_none_is_refused_by_name(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A file without a certificate, or none, names the argument; gRPC's core prints nothing."""
    (tmp_path / "ca.pem").write_text("no certificate")
    with pytest.raises(ValueError, match=r"tls_ca: .*ca\.pem: no CERTIFICATE in it, expected a PE"):
        connect("localhost:1", tls_ca=tmp_path / "ca.pem")
    with pytest.raises(ValueError, match=r"tls_ca: nowhere\.pem: No such file or directory; exp"):
        connect("localhost:1", tls_ca="nowhere.pem")
    assert capfd.readouterr().err == ""


def test_token_of_two_lines_prints_nothing_else(
    server_target: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """A token that no header carries is one exception, without lines of gRPC's core beside it."""
    with pytest.raises(ValueError, match="token"):
        connect(server_target, token="a\nb")
    assert capfd.readouterr().err == ""


def test_array_without_elements_is_refused_by_its_shape(session: Session) -> None:
    """An array of no elements is ZDNN_INVALID_SHAPE in words of the array, not of a descriptor."""
    with pytest.raises(
        ZdnnError, match=r"array is of shape \(0, 3\), must have 1 element"
    ) as caught:
        session.ztensor(np.ones((0, 3), np.float32))
    assert caught.value.name == "ZDNN_INVALID_SHAPE"
    assert caught.value.op == "allochelper_ztensor"


KERNELS: list[tuple[Callable[[], object], str]] = [
    (lambda: mli.krn_tanh_fx8(VALUES), "in: ndarray, expected an mli.Tensor; mli.tensor(array"),
    (
        lambda: mli.krn_fully_connected_fx8(VALUES, VALUES, None, frac_bits=3),
        "in: ndarray, expected an mli.Tensor",
    ),
    (
        lambda: mli.krn_lstm_cell_fx8(None, VALUES, None, None, None, None),
        "prev_out: ndarray, expected an mli.Tensor",
    ),
    (
        lambda: mli.quantise(VALUES, _argument("fx8")),
        "el_type: fx8, expected one of MLI_EL_FX_8, MLI_EL_FX_16, MLI_EL_SA_8, MLI_EL_SA_32",
    ),
    (
        lambda: Options(debug_level=_argument("loud")).message(),
        "debug_level: 'loud', expected one of release, ret_codes, assert, debug, full",
    ),
    (
        lambda: export_case(_argument(None), _argument("xml")),
        "format: 'xml', expected 'json' or 'c'",
    ),
    (lambda: make_rule("add", {"nth": -1}), "nth: -1, expected 0 to "),
    (lambda: make_rule("add", {"probability": "x"}), "probability: 'x', expected a number"),
    (lambda: make_rule("add", {"delay": "x"}), "delay: 'x', expected a FaultDelay"),
    (lambda: make_rule("add", {"shape": (2, "x")}), "shape: 'x', expected a whole number"),
]


def _argument(value: object) -> Argument:
    return value


@pytest.mark.parametrize(("call", "says"), KERNELS, ids=[says for _, says in KERNELS])
def test_argument_of_kernels_and_rules_is_refused_by_name(
    session: Session, call: Callable[[], object], says: str
) -> None:
    """Tensors and options of MLI, and fields of fault rules, are refused by their names."""
    with session, pytest.raises((TypeError, ValueError), match=f"^{re.escape(says)}"):
        call()


def test_refusal_is_logged_for_debugging_only(
    session: Session, caplog: pytest.LogCaptureFixture
) -> None:
    """A program that logs sees a refusal only as an exception, and a warning only as a warning."""
    caplog.set_level(logging.DEBUG, "nnpa_client.zdnn")
    x = session.ztensor(IMAGE)
    with pytest.raises(ZdnnError, match="padding_type is 3"):
        zdnn.maxpool2d(x, 99, 2, 2, 2, 2)
    with pytest.warns(ZdnnWarning):
        zdnn.log(session.ztensor(np.zeros(3, np.float32)))
    levels = {record.levelname for record in caplog.records}
    assert len(caplog.records) == 2
    assert levels == {"DEBUG"}, [record.message for record in caplog.records]


def test_refusal_without_an_exception_stays_an_error_in_the_log() -> None:
    """A line of the library that no exception repeats is logged as an error, for any status."""
    from nnpa.zdnn.v1.operation_pb2 import DIAGNOSTIC_STREAM_STDERR, Diagnostic
    from nnpa_client._guest.guest import log_level

    line = Diagnostic(stream=DIAGNOSTIC_STREAM_STDERR, text="ERROR: out of memory")
    assert log_level(line, zdnn.ZDNN_INVALID_SHAPE) == logging.ERROR
    assert log_level(line, zdnn.ZDNN_OK) == logging.ERROR


INPUTS: list[tuple[str, str]] = [
    ("nowhere.npy", "nowhere.npy: No such file or directory; expected a .npy or .npz of arrays"),
    ("image=", ": Is a directory; expected a .npy or .npz of arrays"),
    ("broken.npy", "broken.npy: no arrays of NumPy, or objects of Python; expected a .npy or"),
]


@pytest.mark.parametrize(("name", "says"), INPUTS)
def test_input_of_a_model_is_refused_by_file(
    server_target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, says: str
) -> None:
    """`nnpa network run` names a file of inputs that it cannot read, and ends with 2."""
    monkeypatch.chdir(tmp_path)
    Path("broken.npy").write_bytes(b"broken")
    command = ["network", "run", str(MODEL_FILE), "--target", server_target, "--input", name]
    refused = CliRunner().invoke(main, command)
    assert refused.exit_code == 2, refused.exception
    assert says in " ".join(refused.stderr.split())
    assert refused.stderr.count("Error:") == 1


def test_machine_that_no_server_has_is_usage(server_target: str) -> None:
    """A machine or library that the server does not know is exit code 2; 3 means no server."""
    command = ["network", "analyze", str(MODEL_FILE), "--target", server_target]
    refused = CliRunner().invoke(main, [*command, "--machine", "z18"])
    assert refused.exit_code == 2
    assert "machine is 'z18', must be one of telum1 (z16)" in " ".join(refused.stderr.split())


def test_every_refusal_is_an_error_of_the_package(session: Session) -> None:
    """A server's refusal of a verb's scalar is an error of the package that names the field."""
    missing: Any = None
    with pytest.raises(NnpaError, match=r"maxpool2d\.padding_type is absent, must be set"):
        zdnn.maxpool2d(session.ztensor(IMAGE), missing, 2, 2, 2, 2)
