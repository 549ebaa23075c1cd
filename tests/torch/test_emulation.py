# SPDX-License-Identifier: Apache-2.0
"""Modules of PyTorch on the emulated machine: their bits, their reports, and refusals."""

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nnpa_client import Session, connect, dlfloat16

from tests.torch.modules import Small, bert, nn, resnet, small, torch

torch_client: Any = pytest.importorskip(
    "nnpa_client.torch", reason="onnxscript is in the extra torch"
)
emulate = torch_client.emulate
pytestmark = pytest.mark.torch

MAKERS = {"resnet": resnet, "bert": bert}


@torch.library.custom_op(  # type: ignore[untyped-decorator]  # of torch
    "nnpa_tests::reversed", mutates_args=(), schema="(Tensor x) -> Tensor"
)
def reverse(x: Any) -> Any:
    """Return elements of the last axis in reversed order: an operator that ONNX lacks."""
    return x.flip(-1).clone()


reverse.register_fake(torch.empty_like)


@pytest.fixture(scope="module", params=["telum1", "telum2"])
def session(request: pytest.FixtureRequest) -> Iterator[Session]:
    """A session on each Telum."""
    with connect(machine=request.param) as opened:
        yield opened


@pytest.fixture(scope="module")
def telum2() -> Iterator[Session]:
    """A session on Telum II."""
    with connect(machine="telum2") as opened:
        yield opened


def arrays(outputs: Any) -> list[Any]:
    """Return the outputs of a module as arrays, in order."""
    tensors = outputs.values() if isinstance(outputs, dict) else [outputs]
    return [tensor.detach().numpy() for tensor in tensors]


@pytest.mark.parametrize("name", MAKERS)
def test_a_module_has_the_bits_of_its_hosted_file(
    name: str, session: Session, tmp_path: Path
) -> None:
    """Placement "compiler" equals the hosted ONNX file bit for bit, and is near eager mode."""
    model, inputs = MAKERS[name]()
    file = tmp_path / "model.onnx"
    torch.onnx.export(model, inputs, file, dynamo=True, external_data=False, verbose=False)
    with session.load(file) as network:
        hosted = network.infer(*[x.numpy() for x in inputs]).outputs.values()
    emulated = arrays(emulate(model, target=session)(*inputs))
    for output, expected, eager in zip(emulated, hosted, arrays(model(*inputs)), strict=True):
        assert output.tobytes() == expected.tobytes()
        assert 0 < np.linalg.norm(output - eager) < 0.02 * np.linalg.norm(eager)


@pytest.mark.parametrize("name", MAKERS)
def test_every_value_is_rounded(name: str) -> None:
    """Placement "every" gives values of DLFLOAT16 alone, near eager mode."""
    model, inputs = MAKERS[name]()
    emulated = arrays(emulate(model, placement="every")(*inputs))
    for output, eager in zip(emulated, arrays(model(*inputs)), strict=True):
        assert (dlfloat16.round(output) == output).all()
        assert 0 < np.linalg.norm(output - eager) < 0.05 * np.linalg.norm(eager)


def test_every_operation_rounds_once() -> None:
    """Placement "every" rounds inputs, parameters and each result, and nothing between."""
    model, x = small(), torch.randn(5, 8) * 1e10
    rounded = dlfloat16.round
    weight, bias = (
        torch.from_numpy(rounded(part.detach().numpy(), saturate=True))
        for part in (model.dense.weight, model.dense.bias)
    )
    entering = torch.from_numpy(rounded(x.numpy(), saturate=True))
    dense = rounded(torch.addmm(bias, entering, weight.T).numpy())
    expected = rounded(torch.relu(torch.from_numpy(dense)).numpy())
    output = emulate(model, placement="every")(x).numpy()
    assert np.isnan(expected).any()
    np.testing.assert_array_equal(output, expected)


@pytest.mark.parametrize("placement", ["compiler", "every"])
@pytest.mark.parametrize("name", MAKERS)
def test_a_report_names_modules(name: str, placement: str, telum2: Session) -> None:
    """Rows have paths of modules, errors that enter and are added, and reasons on the host."""
    model, inputs = MAKERS[name]()
    report = emulate(model, placement=placement, target=telum2).report(*inputs)
    paths = dict(model.named_modules())
    assert {layer.name for layer in report.layers} <= paths.keys()
    weighty = (nn.Linear, nn.BatchNorm2d, nn.LayerNorm)
    expected = {path for path, module in paths.items() if isinstance(module, weighty)}
    assert expected <= {layer.name for layer in report.layers}
    measured = [layer for layer in report.layers if not math.isnan(layer.adds)]
    assert all(0 <= layer.adds < 0.01 and layer.violations == 0 for layer in measured)
    assert any(layer.enters > 0 and layer.adds > 0 for layer in measured)
    assert all(layer.why for layer in report.fallbacks)
    lines = repr(report).splitlines()
    assert len(lines) == 2 + len(report.layers)
    assert all(name in lines[1] for name in ("layer", "error before", "own error", "violations"))


class Power(nn.Module):
    """A dense layer whose outputs are squared twice."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        y = self.dense(x)
        y = y * y
        return y * y


@pytest.mark.parametrize("placement", ["compiler", "every"])
def test_a_report_counts_range_violations(placement: str, telum2: Session) -> None:
    """Elements beyond DLFLOAT16 are counted at the operation that has them, and nowhere before."""
    model = Power().eval()
    with torch.no_grad():
        model.dense.weight.copy_(torch.eye(4))
        model.dense.bias.zero_()
    x = torch.tensor([[1.0, 2.0, 1e4, 1e4]])
    layers = emulate(model, placement=placement, target=telum2).report(x).layers
    assert [layer.violations for layer in layers] == [0, 0, 2]


def test_an_operator_without_onnx_runs_in_torch(telum2: Session) -> None:
    """An operator that ONNX lacks runs in torch between hosted parts; `strict` refuses it."""
    first, second = small(), nn.Linear(4, 3)

    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = first, second

        def forward(self, x: Any) -> Any:
            return self.second(reverse(self.first(x)))

    x, model = torch.randn(2, 8), Both().eval()
    emulated = emulate(model, target=telum2)
    between = reverse(emulate(first, target=telum2)(x))
    assert torch.equal(emulated(x), emulate(second.eval(), target=telum2)(between))
    in_torch = [layer for layer in emulated.report(x).layers if layer.where == "torch"]
    assert [layer.operation for layer in in_torch] == ["nnpa_tests.reversed.default"]
    with pytest.raises(ValueError, match=r"strict: \(model\) \(nnpa_tests\.reversed\.default\)"):
        emulate(model, target=telum2, strict=True)(x)


def test_structures_and_keywords_are_the_modules(telum2: Session) -> None:
    """Keywords, constants and nested outputs pass as in eager mode."""

    class Nested(nn.Module):
        def forward(self, x: Any, scale: float = 1.0, *, also: Any = None) -> dict[str, Any]:
            y = x * scale
            return {"y": (y, [y + 1]), "x": x, "none": also, "three": 3}

    x = torch.tensor([1.0, 2.0])
    for placement in ("compiler", "every"):
        outputs = emulate(Nested().eval(), placement=placement, target=telum2)(x, scale=2.0)
        assert outputs["y"][0].tolist() == [2, 4]
        assert outputs["y"][1][0].tolist() == [3, 5]
        assert outputs["x"].tolist() == [1, 2]
        assert (outputs["none"], outputs["three"]) == (None, 3)


def test_exported_programs_run(telum2: Session) -> None:
    """A program of torch.export has its module's bits; a free batch may be of any size."""
    model, batch = small(), torch.export.Dim("batch", min=1)
    fixed = torch.export.export(model, (torch.randn(3, 8),))
    free = torch.export.export(model, (torch.randn(3, 8),), dynamic_shapes=({0: batch},))
    module = emulate(model, target=telum2)
    for rows in (3, 5):
        x = torch.randn(rows, 8)
        assert torch.equal(emulate(free, target=telum2)(x), module(x))
    x = torch.randn(3, 8)
    assert torch.equal(emulate(fixed, target=telum2)(x), module(x))
    with pytest.raises(ValueError, match=r"input x: shape \(5, 8\).* exported for \(3, 8\)"):
        emulate(fixed, target=telum2)(torch.randn(5, 8))
    with pytest.raises(ValueError, match=r"inputs: by name \['y'\], expected \[\]"):
        emulate(fixed, target=telum2)(y=x)


def test_changed_parameters_count(telum2: Session) -> None:
    """After parameters changed in place, outputs follow the new parameters."""
    model, x = small(), torch.randn(2, 8)
    for placement in ("compiler", "every"):
        emulated = emulate(model, placement=placement, target=telum2)
        before = emulated(x)
        with torch.no_grad():
            model.dense.weight.mul_(2)
        after = emulated(x)
        assert not torch.equal(before, after)
        assert torch.equal(after, emulate(model, placement=placement, target=telum2)(x))
        model.train()
        with pytest.raises(ValueError, match="model: Small is in training mode"):
            emulated(x)
        model.eval()


def training() -> Any:
    """Return a module with one layer in training mode."""
    model = nn.Sequential(nn.Linear(8, 8), nn.Dropout()).eval()
    model[1].train()
    return model


class AlwaysDropout(nn.Module):
    """A module that drops elements in either mode."""

    def forward(self, x: Any) -> Any:
        return nn.functional.dropout(x, 0.5)


class Branch(nn.Module):
    """A module whose control flow depends on values."""

    def forward(self, x: Any) -> Any:
        return x + 1 if x.sum() > 0 else x - 1


class Double(nn.Module):
    """A module that computes in float64 inside."""

    def forward(self, x: Any) -> Any:
        return x.double().exp().float()


class Counter(nn.Module):
    """A module that writes to a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: Any) -> Any:
        self.seen.add_(1)
        return x + self.seen


X = torch.ones(2, 8)
REFUSED: dict[str, tuple[Callable[[], Any], Any, type[Exception], str]] = {
    "training": (training, X, ValueError, r"model: 1 is in training mode, expected eval\(\)"),
    "dropout": (AlwaysDropout, X, ValueError, r"\(model\) \(dropout\): in training mode"),
    "control flow": (Branch, X, ValueError, "Branch cannot be exported, expected no control flow"),
    "float64 parameters": (
        lambda: small().double(), X.double(), TypeError, r"parameter dense\.weight: torch\.float64"
    ),
    "float64 input": (nn.Identity, X.double(), TypeError, "input .*: torch.float64, expected"),
    "float64 inside": (Double, X, TypeError, r"\(model\) \(.*\): torch\.float64, expected"),
    "bfloat16": (nn.Identity, X.bfloat16(), TypeError, "torch.bfloat16, expected torch.float32"),
    "state": (Counter, X, ValueError, "seen: written by the model"),
    "complex": (nn.Identity, X.to(torch.complex64), TypeError, "torch.complex64, expected"),
}  # fmt: skip


@pytest.mark.parametrize("placement", ["compiler", "every"])
@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_run_is_refused_by_name(name: str, placement: str, telum2: Session) -> None:
    """Training, control flow, other types and written state are refused by name and reason."""
    make, x, kind, message = REFUSED[name]
    model = make() if name == "training" else make().eval()
    with pytest.raises(kind, match=message):
        emulate(model, placement=placement, target=telum2)(x)


def test_shapes_that_the_machine_refuses_fall_back_or_are_refused() -> None:
    """A dim above the machine's limit is a fallback with its reason, and an error with strict."""
    model, x = nn.Sequential(nn.ReLU()).eval(), torch.ones(1, 40_000)
    with connect(machine="telum1") as telum1:
        report = emulate(model, target=telum1).report(x)
        assert report.layers == report.fallbacks
        (layer,) = report.layers
        assert (layer.name, layer.where) == ("0", "host")
        assert layer.why == "dim1 would be 40000, must be 1 to 32768"
        with pytest.raises(ValueError, match=r"strict: 0 \(Relu\) falls back: dim1 would be 40000"):
            emulate(model, target=telum1, strict=True)(x)


def test_arguments_are_checked() -> None:
    """A wrong model or placement is refused before anything starts."""
    with pytest.raises(TypeError, match=r"model: function, expected a torch\.nn\.Module"):
        emulate(small)
    with pytest.raises(ValueError, match="placement: 'all', expected one of compiler, every"):
        emulate(Small(), placement="all")


def test_a_private_server_ends_with_the_block() -> None:
    """Without a target a private server runs the module, and ends with the block."""
    with emulate(small(), "z16") as emulated:
        assert emulated(X).shape == (2, 4)
        assert "telum1" in repr(emulated)
    assert "closed" in repr(emulated)
