# SPDX-License-Identifier: Apache-2.0
"""Make the Python code of the wire contract: the only generator of `protos/gen`.

`python protos/generate.py` regenerates `protos/gen/python`. `--check` changes nothing and fails
when the committed code is stale, when `buf lint` complains, or when v1 broke its promise.
`--freeze` makes the present contract the promise (`baseline.binpb`), unless it breaks the old one.
"""

import argparse
import filecmp
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

PROTOS = Path(__file__).resolve().parent
GENERATED = PROTOS / "gen" / "python"
BASELINE = PROTOS / "baseline.binpb"
# Newer generators emit code that refuses protobuf 6, which pyproject still promises to support.
PINNED = {"grpcio-tools": "1.76.0", "mypy-protobuf": "5.1.0"}
HEADER = '# SPDX-License-Identifier: Apache-2.0\n"""{}"""\n'
DOCSTRINGS = {
    "nnpa": "Generated wire code of nnpa: protocol buffers and gRPC stubs, one package per API.",
    "nnpa/mli": "The embARC MLI API of the wire, by version.",
    "nnpa/mli/v1": "embARC MLI on the wire, version 1.",
    "nnpa/zdnn": "The zDNN API of the wire, by version.",
    "nnpa/zdnn/v1": "zDNN on the wire, version 1: status, tensor, operation, accelerator.",
}


def tool(name: str) -> str:
    """Return the path of a tool, the one of this interpreter's environment first."""
    found = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    if found is None:
        raise SystemExit(f"{name} is not installed: pip install -e '.[check]'")
    return found


def check_pins() -> None:
    """Refuse to generate with other tool versions than the pinned ones."""
    for package, wanted in PINNED.items():
        if (found := version(package)) != wanted:
            raise SystemExit(f"{package} is {found}, wanted {wanted}: pip install -e '.[check]'")


def generate(target: Path) -> None:
    """Write modules, stubs and package files of every proto under `target`."""
    sources = sorted(str(path.relative_to(PROTOS)) for path in PROTOS.glob("nnpa/**/*.proto"))
    plugins = [
        f"--plugin={name}={tool(name)}" for name in ("protoc-gen-mypy", "protoc-gen-mypy_grpc")
    ]
    outputs = [f"--{kind}_out={target}" for kind in ("python", "grpc_python")]
    outputs += [f"--{kind}_out=quiet:{target}" for kind in ("mypy", "mypy_grpc")]
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{PROTOS}"]
    subprocess.run([*command, *plugins, *outputs, *sources], cwd=PROTOS, check=True)
    for package, docstring in DOCSTRINGS.items():
        (target / package / "__init__.py").write_text(HEADER.format(docstring), encoding="utf-8")
    (target / "nnpa" / "py.typed").write_text("", encoding="utf-8")


def files(root: Path) -> set[str]:
    """Return the files below `root`, as relative paths, without Python's caches."""
    found = (path.relative_to(root) for path in root.glob("**/*") if path.is_file())
    return {str(path) for path in found if "__pycache__" not in path.parts}


def stale(fresh: Path) -> list[str]:
    """Return the committed files that differ from `fresh`, are missing, or are left over."""
    wanted, present = files(fresh), files(GENERATED)
    _, differing, unreadable = filecmp.cmpfiles(fresh, GENERATED, wanted & present, shallow=False)
    return sorted((wanted ^ present) | set(differing) | set(unreadable))


def buf(*arguments: str) -> bool:
    """Run buf on the contract; return whether it found nothing to complain about."""
    return subprocess.run([tool("buf"), *arguments], cwd=PROTOS, check=False).returncode == 0


def check() -> bool:
    """Return whether generated code is fresh, style is kept, and v1 only grew."""
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder))
        outdated = stale(Path(folder))
    for path in outdated:
        print(f"stale: {GENERATED.relative_to(PROTOS.parent) / path}", file=sys.stderr)
    styled = buf("lint")
    kept = buf("breaking", "--against", str(BASELINE))
    return not outdated and styled and kept


def regenerate() -> None:
    """Replace the committed code."""
    if GENERATED.exists():
        shutil.rmtree(GENERATED)
    GENERATED.mkdir(parents=True)
    generate(GENERATED)


def freeze() -> bool:
    """Make the present contract the promise, unless it breaks the one before."""
    if BASELINE.exists() and not buf("breaking", "--against", str(BASELINE)):
        return False
    return buf("build", "--exclude-source-info", "-o", str(BASELINE))


def main() -> int:
    """Run the chosen action; return the exit code."""
    parser = argparse.ArgumentParser(description="Make the Python code of the wire contract.")
    action = parser.add_mutually_exclusive_group()
    action.add_argument(
        "--check", action="store_true", help="fail when something is stale or broken"
    )
    action.add_argument("--freeze", action="store_true", help="renew baseline.binpb")
    chosen = parser.parse_args()
    check_pins()
    if chosen.check:
        return 0 if check() else 1
    if chosen.freeze:
        return 0 if freeze() else 1
    regenerate()
    return 0


if __name__ == "__main__":
    sys.exit(main())
