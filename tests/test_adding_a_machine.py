# SPDX-License-Identifier: Apache-2.0
"""Two edits add a machine: a scratch copy of the repository gets a Telum III.

The page "Add a machine" of the manual describes the edits. The machine is a Telum II with larger
limits, and with the function that `tests.scratch_copy` adds.
"""

import json
import sys
from pathlib import Path

import pytest

from tests import scratch_copy
from tests.scratch_copy import BLOCK, CONTRACT, ORACLE, VECTORS, before, is_generated, run
from tests.trap.conftest import NNPA

MACHINES = Path("protos/nnpa/zdnn/v1/accelerator.proto")
EDITS = {MACHINES, CONTRACT, BLOCK, VECTORS, ORACLE}
CODE = scratch_copy.CODE.replace("parmblk_format: 1 ", 'parmblk_format: 1 machine: "telum3"\n    ')
MACHINE = """  // IBM z18: "machines/telum3", alias z18.
  MACHINE_MODEL_TELUM3 = 6 [(zdnn_machine) = {
    title: "IBM z18, Telum III"
    aliases: "z18"
    vector_nnp: true
    query: {
      parmblk_formats: [0, 1]
      data_types: 0x82A0
      layout_formats: 0xE0000001
      conversions: 0x6000
      max_dim_idx_size: 32768
      max_tensor_size: 0x200000000
      max_dims: [32768, 32768, 0x200000, 0x400000]
    }
  }];
"""
PROGRAM = """
from nnpa_client import connect, zdnn
with connect() as session:
    if zdnn.is_nnpa_installed():
        print(zdnn.add(session.ztensor([[1.0]]), session.ztensor([[2.0]])).numpy())
"""
MODEL = "client/python/nnpa_client/networks/digits_cnn.onnx"


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository with the machine, generator run."""
    folder = tmp_path_factory.mktemp("scratch") / "nnpa"
    scratch_copy.make(folder)
    scratch_copy.add_operation(folder, CODE)
    machines = (folder / MACHINES).read_text(encoding="utf-8")
    machines = before(machines, '  // IBM z15, without NNPA: "machines/z15".', MACHINE)
    (folder / MACHINES).write_text(machines, encoding="utf-8")
    scratch_copy.generate(folder)
    return folder


def _nnpa(scratch: Path, *arguments: str) -> str:
    return run(scratch, *NNPA, *arguments)


@pytest.mark.heavy
def test_nothing_else_is_edited(scratch: Path) -> None:
    """Only the contract, the edits of the new function, and generated files differ."""
    changed = scratch_copy.changed(scratch)
    assert changed >= EDITS
    for path in changed - EDITS:
        assert is_generated(path, (scratch / path).read_text(encoding="utf-8")), path


@pytest.mark.heavy
def test_it_is_a_machine_of_the_server(scratch: Path) -> None:
    """`nnpa info` lists the machine with its limits, and with the function that Telum II lacks."""
    listed = {machine["name"]: machine for machine in json.loads(_nnpa(scratch, "info", "--json"))}
    newest, older = listed["machines/telum3"], listed["machines/telum2"]
    assert newest["displayName"] == "IBM z18, Telum III"
    assert (newest["maxDim1"], newest["maxTensorSize"]) == (0x400000, str(0x200000000))
    assert set(newest["functions"]) - set(older["functions"]) == {"NNPA_CBRT"}


@pytest.mark.heavy
def test_it_is_in_the_tables_of_what_runs_where(scratch: Path) -> None:
    """The page and `nnpa check` have a column for the machine, the only one with the new function.

    A custom machine has the functions of its base.
    """
    page = (scratch / "deploy/docs/availability.md").read_text(encoding="utf-8")
    assert "| operations | Telum I (z16) | Telum II (z17) | Telum III (z18) | no NNPA |" in page
    assert "| cbrt | UF | UF | yes | UF |" in page
    judged = json.loads(_nnpa(scratch, "check", "--json", "cbrt"))["machines"]
    answers = {name: verdict["runs"] for name, verdict in judged.items()}
    assert answers == {"telum1": "no", "telum2": "no", "telum3": "yes", "z15": "no"}
    for base, answer in (("telum2", "no"), ("telum3", "yes")):
        custom = json.dumps({"base": base, "max_dim1": 64})
        script = (
            "from nnpa_client._values.availability import verdict;"
            "from nnpa_client._guest.custom_machine import find_machine;"
            f"print(verdict('cbrt', find_machine('{custom}')).answer)"
        )
        assert run(scratch, sys.executable, "-c", script) == f"{answer}\n"


@pytest.mark.heavy
def test_the_page_compares_it(scratch: Path) -> None:
    """The page's view of machines has its column, and marks the function that others lack."""
    script = (
        "import json; from nnpa_server.page.machines import machines;"
        "print(json.dumps(machines(None, {})))"
    )
    shown = json.loads(run(scratch, sys.executable, "-c", script))
    assert [machine["name"] for machine in shown["machines"]] == ["telum1", "telum2", "telum3"]
    (row,) = (row for row in shown["rows"] if row["name"] == "NNPA_CBRT")
    assert (row["values"], row["differs"]) == (["no", "no", "yes"], True)


@pytest.mark.heavy
def test_networks_are_measured_on_it(scratch: Path) -> None:
    """`nnpa network validate` measures a model on the machine; estimates have no figures of it."""
    report = json.loads(_nnpa(scratch, "network", "validate", MODEL, "--samples", "2", "--json"))
    assert "Telum III" in report["verdict"]
    estimated = _nnpa(scratch, "estimate", MODEL)
    assert "no figures of IBM z18, Telum III are public" in estimated


@pytest.mark.heavy
def test_the_demo_runs_on_it(scratch: Path) -> None:
    """`nnpa demo` reads digits on the machine, as on the others."""
    assert "IBM z18" in _nnpa(scratch, "demo")


@pytest.mark.heavy
def test_the_doctor_examines_a_program_on_it(scratch: Path, tmp_path: Path) -> None:
    """`nnpa doctor` runs a program on the machine, as on every Telum."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")
    verdict = _nnpa(scratch, "doctor", "--quick", "--", sys.executable, str(program))
    assert "**Nothing found**, for z16 and z17 and z18." in verdict
    assert "\n| z18 | on a z18 | exit code 0 | 7 | - | - |\n" in verdict
