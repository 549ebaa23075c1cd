# SPDX-License-Identifier: Apache-2.0
"""The files for tools of the repository: attributes, hooks, hosted CI."""

import json
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
if not (ROOT / ".git").exists():
    pytest.skip("not a clone", allow_module_level=True)


def _git(*arguments: str, text: str = "") -> list[str]:
    done = subprocess.run(
        ["git", *arguments], cwd=ROOT, input=text, capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


def _is_generated(path: Path) -> bool:
    """Whether the head of a file says that a program wrote it."""
    head = path.read_bytes()[:400].lower()
    return b"generated" in head and (b"do not edit" in head or b"@generated" in head)


def test_generated_files_are_marked() -> None:
    """A file whose head says that it is generated has the attribute linguist-generated."""
    names = [name for name in _git("ls-files") if not name.endswith(".j2")]
    generated = [name for name in names if (ROOT / name).is_file() and _is_generated(ROOT / name)]
    answers = _git("check-attr", "linguist-generated", "--stdin", text="\n".join(generated))
    assert len(generated) > 50
    assert [line for line in answers if not line.endswith(": set")] == []


def test_hosted_ci_calls_the_script() -> None:
    """Hosted CI has one step of its own: `.ci/run`."""
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))
    steps = [step["run"] for step in workflow["jobs"]["run"]["steps"] if "run" in step]
    assert steps == [".ci/run"]


def test_hooks_are_checks_of_poe() -> None:
    """A hook of pre-commit runs a command that `poe check` runs, too."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        tasks = tomllib.load(file)["tool"]["poe"]["tasks"]["check"]["sequence"]
    commands = {task["cmd"] for task in tasks}
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    hooks = [hook["entry"] for repository in config["repos"] for hook in repository["hooks"]]
    for entry in hooks:
        program = entry.replace(" --force-exclude", "")
        assert any(command.startswith(program) for command in commands), entry


def test_a_table_of_minutes_ends_a_script() -> None:
    """Stages that ended are rows, with the failed one's exit code as the script's."""
    script = f"""
        set -e
        . {ROOT}/.ci/stages
        trap table_of_stages EXIT
        stage "first things" true
        stage "second" sh -c 'exit 7'
        stage "third" true
    """
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True)
    table = done.stdout.partition("=== minutes of each stage\n")[2].splitlines()
    assert (done.returncode, table) == (7, ["   0.0  first things", "=== all: 0.0 minutes"])


def test_the_full_script_runs_in_parts() -> None:
    """A stage that does not exist is refused before anything runs; the error lists all stages."""
    done = subprocess.run([ROOT / ".ci/full", "soap"], capture_output=True, text=True)
    assert done.returncode == 2
    first, *stages = done.stdout.splitlines()
    assert first == '.ci/full has no stage "soap", but:'
    assert {"  score", "  attacks", "  soak"} < set(stages)


def test_versions_agree() -> None:
    """Packages of all languages, and the pins of extras, have one version."""

    def version(name: str, *keys: str) -> str:
        value = tomllib.loads((ROOT / name).read_text(encoding="utf-8"))
        for key in keys:
            value = value[key]
        return str(value)

    ours = version("pyproject.toml", "project", "version")
    pins = re.findall(r"nnpa-\w+==([\d.]+)", (ROOT / "pyproject.toml").read_text("utf-8"))
    typescript = json.loads((ROOT / "client/typescript/package.json").read_text("utf-8"))
    java = re.search(r"<version>(.*?)</version>", (ROOT / "client/java/pom.xml").read_text("utf-8"))
    assert java is not None
    assert [
        version("client/libzdnn/wheel/pyproject.toml", "project", "version"),
        version("client/trap/wheel/pyproject.toml", "project", "version"),
        version("client/libzdnn/Cargo.toml", "package", "version"),
        typescript["version"],
        java[1],
        *pins,
    ] == [ours] * 7
    assert f"\n## {ours} " in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
