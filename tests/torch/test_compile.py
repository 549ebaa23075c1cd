# SPDX-License-Identifier: Apache-2.0
"""`torch.compile(model, backend="nnpa")`."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from nnpa_client import connect

from tests.torch.modules import small, torch

torch_client: Any = pytest.importorskip(
    "nnpa_client.torch", reason="onnxscript is in the extra torch"
)
pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore:Guards may run slower on Python:RuntimeWarning"),
]
ROOT = Path(__file__).resolve().parents[2]
MANUAL = ROOT / "deploy/docs/python/torch.md"

BY_NAME = """
import sys
import torch
from tests.torch.modules import small

model, x = small(), torch.arange(16.0).reshape(2, 8)
assert not any(name.startswith("nnpa_client") for name in sys.modules)
compiled = torch.compile(model, backend="nnpa")
with torch.no_grad():
    y = compiled(x)
from nnpa_client.torch import emulate
with emulate(model) as emulated:
    assert torch.equal(y, emulated(x)), "not the bits of emulate"
assert not torch.equal(y, model(x)), "the bits of eager mode"
print("compiled by name")
"""


@pytest.fixture(autouse=True)
def _fresh() -> None:
    """Forget what other tests have compiled."""
    torch.compiler.reset()


def test_the_name_works_without_an_import() -> None:
    """In a fresh process the name alone finds the backend, which has the bits of `emulate`."""
    command = [sys.executable, "-c", BY_NAME]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.stdout == "compiled by name\n", ended.stderr


def test_options_choose_machine_and_placement() -> None:
    """The backend takes the options of `emulate`, and refuses others by name."""
    model, x = small(), torch.randn(2, 8)
    options = {"placement": "every"}
    compiled = torch.compile(model, backend="nnpa", options=options)
    assert torch.equal(compiled(x), torch_client.emulate(model, placement="every")(x))
    with pytest.raises(ValueError, match="options: 'machines', expected one of machine, placement"):
        torch_client.backend(torch.fx.symbolic_trace(model), [x], options={"machines": "z16"})


def test_new_shapes_and_new_parameters_are_compiled() -> None:
    """Other batches, and changed parameters, give the results of `emulate`."""
    model = small()
    compiled = torch.compile(model, backend="nnpa", options={"placement": "every"})
    emulated = torch_client.emulate(model, placement="every")
    for rows in (2, 3, 5):
        x = torch.randn(rows, 8)
        assert torch.equal(compiled(x), emulated(x))
        with torch.no_grad():
            model.dense.weight.mul_(1.5)
        assert torch.equal(compiled(x), emulated(x))


class Normalised(torch.nn.Module):
    """Two normalisations, whose eps are numbers that Dynamo takes as inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.dense, self.norm = torch.nn.Linear(8, 16), torch.nn.LayerNorm(16)
        self.groups, self.slope = torch.nn.GroupNorm(4, 16, eps=0.25), 0.5

    def forward(self, x: Any) -> Any:
        return self.groups(self.norm(self.dense(x))) * self.slope


@pytest.mark.parametrize("placement", ["every", "compiler"])
def test_dynamic_shapes_and_numbers_of_modules(placement: str) -> None:
    """With dynamic=True normalisations have the bits of `emulate`, also after an eps changed."""
    model = Normalised().eval()
    compiled = torch.compile(model, backend="nnpa", dynamic=True, options={"placement": placement})
    rows_of: dict[float, list[Any]] = {}
    with connect(machine="z17") as session, torch.no_grad():
        target = session if placement == "compiler" else None
        for count, eps in ((2, 1e-5), (3, 1e-5), (3, 4.0), (5, 4.0)):
            model.norm.eps, x = eps, torch.ones(count, 8)
            y = compiled(x)
            with torch_client.emulate(model, placement=placement, target=target) as fresh:
                assert torch.equal(y, fresh(x))
            rows_of.setdefault(eps, []).append(y[0])
    for first, second in rows_of.values():
        assert torch.equal(first, second)
    small_eps, large_eps = (rows[0] for rows in rows_of.values())
    assert not torch.equal(small_eps, large_eps)


NOISY = """
import torch
from nnpa_client.torch import emulate

class ByValue(torch.nn.Module):
    def forward(self, x):
        return x * 2 if x.sum() > 0 else x

try:
    emulate(ByValue().eval(), placement="every")(torch.ones(2, 3))
except ValueError as error:
    assert "control flow that depends on values" in str(error), error
else:
    raise AssertionError("not refused")
"""


@pytest.mark.parametrize("logs", [{}, {"TORCH_LOGS": "export"}])
def test_the_exporter_is_quiet_unless_asked(logs: dict[str, str]) -> None:
    """A refusal prints no graph and no note of torch, unless TORCH_LOGS turns them on."""
    is_quiet = not logs
    environment = {name: text for name, text in os.environ.items() if name != "TORCH_LOGS"} | logs
    command = [sys.executable, "-c", NOISY]
    ended = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert ("def forward" not in ended.stderr) is is_quiet
    assert (ended.stdout + ended.stderr == "") is is_quiet


def test_training_is_refused() -> None:
    """A backward pass is refused, and so is a module with a layer in training mode."""
    options = {"placement": "every"}
    compiled = torch.compile(small(), backend="nnpa", options=options)
    with pytest.raises(RuntimeError, match="nnpa backend runs models forward only"):
        compiled(torch.ones(2, 8)).sum().backward()
    dropout = torch.compile(torch.nn.Dropout(0.5), backend="nnpa", options=options)
    with pytest.raises(ValueError, match="in training mode"):
        dropout(torch.ones(2, 8))


def test_the_manual_runs() -> None:
    """The Python blocks of the manual that need PyTorch run by themselves."""
    blocks = re.findall(r"^```python\n(.*?)^```$", MANUAL.read_text("utf-8"), re.M | re.S)
    with_torch = [block for block in blocks if "import torch\n" in block]
    assert with_torch
    for block in with_torch:
        subprocess.run([sys.executable, "-W", "error::UserWarning", "-c", block], check=True)
