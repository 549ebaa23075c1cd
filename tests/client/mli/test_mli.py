# SPDX-License-Identifier: Apache-2.0
"""The MLI client: arrays in and out, batches, memory, errors, cases as text."""

import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nnpa_client import NnpaError, ProgramCheck, Session, TransportError, mli

EXAMPLE = Path(__file__).parents[3] / "client/python/examples/mli_keyword_spotting.py"
M, N, FRAMES = 3, 4, 5
ASSERTING = mli.Options(debug_level="assert")


def small(shape: tuple[int, ...], dtype: npt.DTypeLike, frac_bits: int, seed: int) -> mli.Tensor:
    """Small values of a shape."""
    values = np.random.default_rng(seed).integers(-20, 20, shape).astype(dtype)
    return mli.tensor(values, frac_bits=frac_bits)


def cell_arguments(frames: int = 0) -> dict[str, Any]:
    """Arguments of an fx8 LSTM cell, one frame or several."""
    mode = mli.RNN_BATCH_TO_BATCH if frames else mli.RNN_ONE_TO_ONE
    ir_tsr = mli.empty((4, M), mli.MLI_EL_FX_8)
    return {
        "in_": small((frames, N) if frames else (N,), np.int8, 5, 0),
        "prev_out": small((M,), np.int8, 7, 1),
        "weights": small((4, M, N + M), np.int8, 4, 2),
        "bias": small((4, M), np.int8, 3, 3),
        "cfg": mli.RnnCellCfg(mode, mli.RNN_ACT_TANH, ir_tsr),
        "cell": small((M,), np.int8, 4, 4),
    }


def test_on_the_connection_of_a_session(session: Session) -> None:
    """Inside a session kernels use its connection, in process and over gRPC."""
    x = mli.tensor(np.array([[-128, 0], [8, 127]], np.int8), frac_bits=4)
    out = mli.krn_tanh_fx8(x)
    assert out.array.tolist() == [[-128, 0], [59, 127]]
    assert out.frac_bits == 7
    assert out.array.dtype == np.dtype(np.int8)
    assert session.transport.target


def test_a_private_server() -> None:
    """Without a target a server starts for the connection, and ends with it."""
    with mli.connect() as connection:
        assert connection.target.startswith("unix:")
        assert mli.hlp_tensor_element_size(mli.empty(1, mli.MLI_EL_SA_32)) == 4
    connection.close()
    with pytest.raises(NnpaError, match="no session is open"):
        mli.hlp_tensor_element_size(mli.empty(1, mli.MLI_EL_SA_32))


@pytest.mark.usefixtures("connection")
def test_outputs_left_out_are_made() -> None:
    """Every kernel that writes makes an output of the size it needs."""
    x = small((N,), np.int16, 5, 0)
    weights, bias = small((M, N), np.int16, 4, 1), small((M,), np.int16, 3, 2)
    out = mli.krn_fully_connected_fx16(x, weights, bias, frac_bits=6)
    total = weights.array.astype(int) @ x.array + bias.array.astype(int) * 2**6
    assert out.array.tolist() == np.rint(total / 2**3).astype(int).tolist()
    assert (out.frac_bits, out.capacity) == (6, 2 * M)
    with pytest.raises(ValueError, match="frac_bits: None"):
        mli.krn_fully_connected_fx16(x, weights, bias)
    states = mli.krn_lstm_cell_fx8(**cell_arguments(FRAMES))
    assert states.array.shape == (FRAMES, M)
    arguments = cell_arguments(FRAMES)
    del arguments["cell"]
    arguments |= {"weights": small((M, N + M), np.int8, 4, 2), "bias": small((M,), np.int8, 3, 3)}
    assert mli.krn_basic_rnn_cell_fx8(**arguments).array.shape == (FRAMES, M)


@pytest.mark.usefixtures("connection")
def test_written_tensors_are_filled_in_place() -> None:
    """Cell and intermediate tensor change where they are; inputs do not."""
    arguments = cell_arguments()
    before = {
        key: argument.contents
        for key, argument in arguments.items()
        if isinstance(argument, mli.Tensor)
    }
    out = mli.krn_lstm_cell_fx8(**arguments)
    changed = [key for key, contents in before.items() if arguments[key].contents != contents]
    assert changed == ["cell"]
    assert arguments["cfg"].ir_tsr.array.shape == (4, M)
    assert out.array.shape == (M,)


def test_a_batch_is_one_request(connection: mli.Connection) -> None:
    """A sequence step by step in one request gives what the batch mode gives."""
    whole = cell_arguments(FRAMES)
    states = mli.krn_lstm_cell_fx8(**whole)
    step, outputs = cell_arguments(FRAMES), list[mli.Tensor]()
    x = step.pop("in_")
    step["cfg"] = mli.RnnCellCfg(mli.RNN_ONE_TO_ONE, mli.RNN_ACT_TANH, step["cfg"].ir_tsr)
    with mli.batch(on=connection) as queued:
        for frame in range(FRAMES):
            row = mli.hlp_subtensor(x, mli.SubTensorCfg((frame, 0), (1, N), 1))
            step["prev_out"] = mli.krn_lstm_cell_fx8(row, **step)
            outputs.append(step["prev_out"])
        assert not queued.results
    assert len(queued.results) == 2 * FRAMES
    assert [output.array.tolist() for output in outputs] == states.array.tolist()
    assert step["cell"].array.tolist() == whole["cell"].array.tolist()


@pytest.mark.usefixtures("connection")
def test_numbers_send_what_is_queued() -> None:
    """A function that answers with a number runs after the calls before it, inside a batch too."""
    x = small((2, 3), np.int8, 4, 0)
    with mli.batch() as queued:
        out = mli.krn_sigm_fx8(x)
        assert mli.hlp_count_elem_num(out, 1) == 3
        assert out.array.shape == (2, 3)
    assert len(queued.results) == 2


@pytest.mark.usefixtures("connection")
def test_a_batch_has_one_build() -> None:
    """A call in a batch must have the options of the batch."""
    x = small((2,), np.int8, 4, 0)
    with pytest.raises(ValueError, match="must be those of the batch"), mli.batch():
        mli.krn_tanh_fx8(x, options=ASSERTING)


@pytest.mark.usefixtures("connection")
def test_an_error_in_a_batch_tells_its_place() -> None:
    """Calls before the refused one have filled their outputs, those after it have not run."""
    x, bad = small((2,), np.int8, 4, 0), small((2,), np.int16, 4, 0)
    outputs = list[mli.Tensor]()

    def queue(*inputs: mli.Tensor) -> None:
        with mli.batch():
            outputs.extend(mli.krn_tanh_fx8(tensor) for tensor in inputs)

    with pytest.raises(mli.MliError) as caught:
        queue(x, bad, x)
    assert caught.value.kernel_index == 1
    assert str(caught.value).startswith("kernel 1, mli_krn_tanh_fx8: MLI_STATUS_TYPE_MISMATCH")
    assert [output.rank for output in outputs] == [1, 0, 0]


def test_a_batch_that_fails_is_not_sent(connection: mli.Connection) -> None:
    """When the block raises, none of its calls has run."""
    x = small((2,), np.int8, 4, 0)
    outputs = list[mli.Tensor]()

    def fail() -> None:
        with mli.batch(on=connection):
            outputs.append(mli.krn_tanh_fx8(x))
            raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        fail()
    assert outputs[0].rank == 0


@pytest.mark.usefixtures("connection")
def test_errors_carry_status_and_refusal() -> None:
    """A refused call raises MliError and writes nothing."""
    arguments = cell_arguments()
    arguments["bias"] = small((4, M + 1), np.int8, 3, 3)
    before = arguments["cell"].contents
    with pytest.raises(mli.MliError) as caught:
        mli.krn_lstm_cell_fx8(**arguments)
    error = caught.value
    assert (error.status, error.name) == (2, "MLI_STATUS_SHAPE_MISMATCH")
    assert error.refusal.constraint == "lstm_cell_c10"
    assert error.refusal.field in str(error)
    assert (error.kernel, error.kernel_index) == ("krn_lstm_cell_fx8", None)
    assert arguments["cell"].contents == before


@pytest.mark.usefixtures("connection")
def test_null_arguments_are_refused() -> None:
    """None is NULL, for tensors and configurations."""
    arguments = cell_arguments()
    for name in arguments:
        with pytest.raises(mli.MliError, match="NULL"):
            mli.krn_lstm_cell_fx8(**arguments | {name: None})
    for function in (mli.hlp_convert_tensor, mli.hlp_convert_tensor_safx, mli.hlp_subtensor):
        with pytest.raises(mli.MliError, match="NULL"):
            function(None, None)
    assert mli.hlp_tensor_scale(None) == 0


@pytest.mark.usefixtures("connection")
def test_builds_assert_warn_and_remark() -> None:
    """ASSERT is a ProgramCheck; RELEASE and a DEBUG build's messages are warnings."""
    bad = small((2,), np.int16, 4, 0)
    with pytest.raises(ProgramCheck, match="MLI_STATUS_TYPE_MISMATCH") as caught:
        mli.krn_tanh_fx8(bad, options=ASSERTING)
    assert (caught.value.kind, caught.value.constraint) == ("assertion", "activation_c2")
    release = mli.Options(debug_level="release")
    with pytest.warns(mli.MliWarning, match="nothing is written") as alone:
        mli.krn_tanh_fx8(bad, options=release)
    with pytest.warns(mli.MliWarning, match="nothing is written") as together, mli.batch(release):
        mli.krn_tanh_fx8(bad)
    assert alone[0].filename == together[0].filename == __file__
    arguments = cell_arguments()
    ir_tsr = arguments["cfg"].ir_tsr
    arguments["cfg"] = mli.RnnCellCfg(mli.RNN_ONE_TO_ONE, mli.RNN_ACT_NONE, ir_tsr)
    out = mli.empty(M, mli.MLI_EL_FX_8, frac_bits=3)
    with pytest.warns(mli.MliWarning, match="lstm_cell_c26"):
        mli.krn_lstm_cell_fx8(**arguments, out=out, options=mli.Options(debug_level="debug"))


@pytest.mark.usefixtures("connection")
def test_overflow_warns() -> None:
    """A sum beyond the accumulator gives a warning, and the exact result."""
    x = mli.tensor(np.full(2048, -32768, np.int16), frac_bits=15)
    weights = mli.tensor(np.full((1, 2048), -128, np.int8), frac_bits=0)
    bias = mli.tensor(np.zeros(1, np.int8), frac_bits=0)
    with pytest.warns(mli.MliWarning, match="left the accumulator"):
        out = mli.krn_fully_connected_fx8w16d(x, weights, bias, frac_bits=0)
    assert out.array.tolist() == [32767]


@pytest.mark.usefixtures("connection")
def test_shared_memory() -> None:
    """In place where it is allowed; a forbidden overlap is refused with both names."""
    x = small((2, 3), np.int16, 10, 0)
    apart = mli.krn_tanh_fx16(x)
    inside = mli.krn_tanh_fx16(x, mli.shared(x))
    assert inside.memory is x.memory
    assert inside.array.tolist() == apart.array.tolist() == x.array.tolist()
    weights, bias = small((3, 6), np.int16, 4, 1), small((3,), np.int16, 3, 2)
    with pytest.raises(mli.MliError, match="out is in the memory of in") as caught:
        mli.krn_fully_connected_fx16(x, weights, bias, mli.shared(x, offset=2, frac_bits=4))
    assert caught.value.status == mli.MLI_STATUS_INCOMPATEBLE_TENSORS
    with pytest.raises(ValueError, match="offset: 13 bytes"):
        mli.shared(x, offset=13)


@pytest.mark.usefixtures("connection")
def test_one_tensor_as_input_and_output() -> None:
    """A tensor that is its own output is transformed in place."""
    x = small((6,), np.int8, 4, 0)
    expected = mli.krn_sigm_fx8(x).array.tolist()
    assert mli.krn_sigm_fx8(x, x) is x
    assert x.array.tolist() == expected
    assert x.frac_bits == 7


@pytest.mark.usefixtures("connection")
def test_a_slice_shares_its_tensor_s_memory() -> None:
    """A sub-tensor sees later writes, and has the parameters of its axis."""
    values = np.arange(24, dtype=np.int8).reshape(4, 2, 3)
    x = mli.tensor(values, scale=[1, 2, 3, 4], zero_point=[5, 6, 7, 8], dim=0)
    part = mli.hlp_create_subtensor(x, mli.SubTensorCfg((1, 0, 1), (2, 1, 2), 2))
    assert part.array.tolist() == values[1:3, 0, 1:].tolist()
    assert part.el_params == mli.SaParams((6, 7), (2, 3), (0, 0), 0)
    assert part.memory is x.memory
    assert x.memory is not None
    x.memory[7] = 99
    assert part.array[0, 0] == 99


@pytest.mark.usefixtures("connection")
@pytest.mark.parametrize("dim", [-1, 0, 1])
def test_conversion_between_all_kinds(dim: int) -> None:
    """Float to asymmetric and back stays within half a step of each slice."""
    floats = np.random.default_rng(0).normal(0, [[1], [5], [20]], (3, 7)).astype(np.float32)
    params = mli.fit_sa(floats, 8, dim)
    keywords: dict[str, Any] = {
        "zero_point": params.zero_point,
        "scale": params.scale,
        "scale_frac_bits": params.scale_frac_bits,
    }
    coded = mli.empty(floats.shape, mli.MLI_EL_SA_8, **keywords, dim=dim)
    mli.hlp_convert_tensor(mli.tensor(floats), coded)
    expected = mli.quantise(floats, mli.MLI_EL_SA_8, params)
    assert np.abs(coded.array.astype(int) - expected.array).max() <= 1
    back = mli.empty(floats.shape, mli.MLI_EL_FP_32)
    mli.hlp_convert_tensor(coded, back)
    np.testing.assert_allclose(back.array, mli.dequantise(coded), rtol=1e-6)
    step = np.array(params.scale) / 2.0 ** np.array(params.scale_frac_bits)
    spread = step.reshape([-1 if d == dim else 1 for d in range(2)])
    assert (np.abs(back.array - floats) <= 1.01 * spread).all()
    for index, scale in enumerate(params.scale):
        assert mli.hlp_tensor_scale(coded, index) == scale
        assert mli.hlp_tensor_scale_shift(coded, index) == params.scale_frac_bits[index]
        assert mli.hlp_tensor_zero_offset(coded, index) == params.zero_point[index]


@given(
    st.lists(st.floats(-1e4, 1e4), min_size=1, max_size=20),
    st.sampled_from(
        [mli.MLI_EL_FX_8, mli.MLI_EL_FX_16, mli.MLI_EL_SA_8, mli.MLI_EL_SA_32],
    ),
)
def test_quantise_and_back(values: list[float], el_type: int) -> None:
    """With fitted parameters a value comes back within a step, or saturates where none fits."""
    coded = mli.quantise(values, el_type)
    back = mli.dequantise(coded)
    if isinstance(coded.el_params, mli.FxParams):
        step = 2.0**-coded.el_params.frac_bits
        limits = np.iinfo(coded.dtype.name)
        expected = np.clip(values, limits.min * step, limits.max * step)
        assert (np.abs(back - expected) <= step).all()
    else:
        assert isinstance(coded.el_params, mli.SaParams)
        step = coded.el_params.scale[0] / 2.0 ** coded.el_params.scale_frac_bits[0]
        assert (np.abs(back - np.array(values)) <= 1.5 * step + 1e-3 * np.abs(values)).all()


def test_quantise_refuses_what_it_cannot_do() -> None:
    """`quantise` refuses infinite values, types without integers, and parameters of other kinds."""
    with pytest.raises(ValueError, match="must be finite"):
        mli.quantise([np.inf], mli.MLI_EL_FX_8)
    with pytest.raises(ValueError, match="el_type: MLI_EL_FP_32, expected one of MLI_EL_FX_8, "):
        mli.quantise([1.0], mli.MLI_EL_FP_32)
    with pytest.raises(ValueError, match="must be of the element type's kind"):
        mli.quantise([1.0], mli.MLI_EL_SA_8, mli.FxParams(3))


def test_tensors_say_what_they_take() -> None:
    """The dtype and the parameters must name an element type."""
    with pytest.raises(ValueError, match="int32 with FxParams"):
        mli.tensor(np.zeros(2, np.int32), frac_bits=3)
    with pytest.raises(ValueError, match="float64 with NoneType"):
        mli.tensor(np.zeros(2))
    with pytest.raises(ValueError, match="must be one of them"):
        mli.tensor(np.zeros(2, np.int8), frac_bits=3, scale=2)
    with pytest.raises(ValueError, match="mem_stride"):
        mli.tensor(np.zeros((2, 2), np.int8), frac_bits=3, mem_stride=[1])
    with pytest.raises(ValueError, match="has no frac_bits"):
        _ = mli.tensor(np.zeros(2, np.float32)).frac_bits
    strided = mli.tensor(np.arange(6, dtype=np.int8).reshape(2, 3), frac_bits=0, mem_stride=[7, 2])
    assert strided.array.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert strided.capacity == 12
    assert repr(strided) == "<mli.Tensor (2, 3) int8, FxParams(frac_bits=0)>"


@pytest.mark.usefixtures("connection")
def test_a_malformed_call_is_a_transport_error() -> None:
    """A call with a field that no mli_tensor could hold does not reach the library."""
    x = mli.tensor(np.zeros(2, np.int8), frac_bits=300)
    with pytest.raises(TransportError, match="FIELD_INVALID") as caught:
        mli.krn_tanh_fx8(x)
    assert caught.value.metadata["field"].endswith("in.inline.fx.frac_bits")


@pytest.mark.usefixtures("connection")
def test_kernels_are_listed() -> None:
    """The server lists its kernels with their conditions."""
    kernels = {kernel.name: kernel for kernel in mli.list_kernels()}
    conditions = kernels["krn_lstm_cell_fx16"].constraints
    assert conditions[8].name == "lstm_cell_c9"
    assert conditions[8].text == "weights and bias have 4 gates: SHAPE_MISMATCH"


def test_the_example(server_target: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The keyword spotter: 16 bits are nearest to float, 8 bits farthest, one keyword wins."""
    main = runpy.run_path(str(EXAMPLE))["main"]
    with mli.connect(server_target):
        exact, runs = main()
    errors = {name: np.abs(run.states - exact.states).max() for name, run in runs.items()}
    assert errors["fx16"] < 2e-3 < errors["fx8w16d"] < errors["fx8"] < 0.2
    assert {run.scores.argmax() for run in runs.values()} == {exact.scores.argmax()}
    printed = capsys.readouterr().out.splitlines()
    assert [re.split(r"\s+", line)[0] for line in printed[1:]] == ["float", *runs]


@pytest.mark.heavy
def test_the_example_draws(server_target: str, tmp_path: Path) -> None:
    """The example as a program writes the plot to the path of its argument."""
    pytest.importorskip("matplotlib", reason="the plot is part of the extra bench")
    picture = tmp_path / "plot.png"
    program = [sys.executable, str(EXAMPLE), str(picture), server_target]
    subprocess.run(program, check=True, capture_output=True, timeout=120)
    assert picture.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
