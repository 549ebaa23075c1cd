# SPDX-License-Identifier: Apache-2.0
"""Generate `protos/gen`, and all files and blocks of files that follow from the wire contract.

`python protos/generate.py` regenerates all of it. `--check` changes nothing and fails when the
committed code is stale, when `buf lint` complains, or when v1 broke its promise. `--freeze` makes
the present contract the promise (`baseline.binpb`), unless it breaks the old one. Messages of a
language whose toolchain this machine lacks stay as they are, and a line says so; `--strict` makes
that a failure.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

from sdk import ROOT, SDKS, Contract, Messages, Sdk, read_contract, render

PROTOS = Path(__file__).resolve().parent
BASELINE = PROTOS / "baseline.binpb"
# Newer generators emit code that refuses protobuf 6, which pyproject still promises to support.
PINNED = {"grpcio-tools": "1.76.0", "mypy-protobuf": "5.1.0"}
# Published by others under a package name of theirs, so that a process may hold it once only: kept
# as a descriptor too, from which a process that holds another copy makes classes of its own.
PUBLISHED = "nnpa/oip/open_inference_grpc"
HEADER = '# SPDX-License-Identifier: Apache-2.0\n"""{}"""\n'
DOCSTRINGS = {
    "nnpa": "Generated wire code of nnpa: protocol buffers and gRPC stubs, one package per API.",
    "nnpa/instruction": "The NNPA instruction on the wire, by version.",
    "nnpa/instruction/v1": "The NNPA instruction on the wire, version 1.",
    "nnpa/mli": "The embARC MLI API of the wire, by version.",
    "nnpa/mli/v1": "embARC MLI on the wire, version 1.",
    "nnpa/network": "Hosted networks on the wire, by version.",
    "nnpa/network/v1": "Hosted networks on the wire, version 1: network, program.",
    "nnpa/oip": "The Open Inference Protocol, version 2; beside its modules, its descriptor.",
    "nnpa/zdnn": "The zDNN API of the wire, by version.",
    "nnpa/zdnn/v1": "zDNN on the wire, version 1: a module for each file of the contract.",
}


def tool(name: str) -> str:
    """Return the path of a tool, the one of this interpreter's environment first."""
    path = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    if path is None:
        raise SystemExit(f"{name} is not installed: pip install -e '.[check]'")
    return path


def check_pins() -> None:
    """Refuse to generate with other tool versions than the pinned ones."""
    for package, pinned in PINNED.items():
        if (installed := version(package)) != pinned:
            raise SystemExit(f"{package} is {installed}, not {pinned}: pip install -e '.[check]'")


def generate(target: Path) -> None:
    """Write modules, stubs and package files of every proto under `target`."""
    sources = sorted(str(path.relative_to(PROTOS)) for path in PROTOS.glob("nnpa/**/*.proto"))
    plugins = [
        f"--plugin={name}={tool(name)}" for name in ("protoc-gen-mypy", "protoc-gen-mypy_grpc")
    ]
    outputs = [f"--{kind}_out={target}" for kind in ("python", "grpc_python")]
    outputs += [f"--{kind}_out=quiet:{target}" for kind in ("mypy", "mypy_grpc")]
    protoc = [sys.executable, "-m", "grpc_tools.protoc", f"-I{PROTOS}"]
    subprocess.run([*protoc, *plugins, *outputs, *sources], cwd=PROTOS, check=True)
    descriptor = f"--descriptor_set_out={target / PUBLISHED}.binpb"
    subprocess.run([*protoc, descriptor, f"{PUBLISHED}.proto"], cwd=PROTOS, check=True)
    for package, docstring in DOCSTRINGS.items():
        (target / package / "__init__.py").write_text(HEADER.format(docstring), encoding="utf-8")
    (target / "nnpa" / "py.typed").write_text("", encoding="utf-8")


# Python's messages, which all packages share, then what each language has.
ALL = (Sdk("messages", PROTOS, (), messages=Messages("gen/python", str, generate)), *SDKS)


def contents(root: Path) -> dict[Path, bytes]:
    """Return the files below `root`, by relative path, without Python's caches."""
    paths = (path for path in root.glob("**/*") if path.is_file() and path.suffix != ".pyc")
    return {path.relative_to(root): path.read_bytes() for path in paths}


def stale(fresh: Path, committed: Path) -> list[Path]:
    """Return the committed files that differ from `fresh`, are missing, or are left over."""
    generated, present = contents(fresh), contents(committed)
    paths = sorted(generated.keys() | present.keys())
    return [committed / path for path in paths if generated.get(path) != present.get(path)]


def stale_sdk(sdk: Sdk, contract: Contract, strict: bool) -> list[Path]:
    """Return the files of an SDK that differ from what the contract generates."""
    outdated = [
        path
        for path, text in render(sdk, contract).items()
        if not path.is_file() or path.read_text(encoding="utf-8") != text
    ]
    if sdk.messages is None or lacking(sdk, strict):
        return outdated
    with tempfile.TemporaryDirectory() as folder:
        sdk.messages.write(Path(folder))
        return outdated + stale(Path(folder), sdk.home / sdk.messages.folder)


def lacking(sdk: Sdk, strict: bool) -> bool:
    """Print what this machine lacks to generate an SDK's messages; return whether it lacks any."""
    missing = sdk.messages.missing() if sdk.messages else ""
    if missing:
        print(f"{sdk.name}: messages not generated, this machine has no {missing}", file=sys.stderr)
        if strict:
            raise SystemExit(1)
    return bool(missing)


def buf(*arguments: str) -> bool:
    """Run buf on the contract; return whether it succeeds."""
    return subprocess.run([tool("buf"), *arguments], cwd=PROTOS, check=False).returncode == 0


def check(strict: bool) -> bool:
    """Return whether generated code is fresh, style is kept, and v1 only grew."""
    contract = read_contract()
    outdated = [path for sdk in ALL for path in stale_sdk(sdk, contract, strict)]
    for path in outdated:
        print(f"stale: {path.relative_to(ROOT)}", file=sys.stderr)
    styled = buf("lint")
    kept = buf("breaking", "--against", str(BASELINE))
    return not outdated and styled and kept


def regenerate(strict: bool) -> None:
    """Replace the committed code."""
    contract = read_contract()
    for sdk in ALL:
        for path, text in render(sdk, contract).items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        if sdk.messages and not lacking(sdk, strict):
            replace(sdk.home / sdk.messages.folder, sdk.messages.write)


def replace(folder: Path, write: Callable[[Path], None]) -> None:
    """Empty a folder that holds generated code only, and write it."""
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    write(folder)


def freeze() -> bool:
    """Make the present contract the promise, unless it breaks the previous one."""
    if BASELINE.exists() and not buf("breaking", "--against", str(BASELINE)):
        return False
    return buf("build", "--exclude-source-info", "-o", str(BASELINE))


def main() -> int:
    """Run the chosen action; return the exit code."""
    parser = argparse.ArgumentParser(description="Generate what follows from the wire contract.")
    action = parser.add_mutually_exclusive_group()
    action.add_argument(
        "--check", action="store_true", help="fail when something is stale or broken"
    )
    action.add_argument("--freeze", action="store_true", help="renew baseline.binpb")
    parser.add_argument("--strict", action="store_true", help="a missing toolchain is a failure")
    chosen = parser.parse_args()
    check_pins()
    if chosen.check:
        return 0 if check(chosen.strict) else 1
    if chosen.freeze:
        return 0 if freeze() else 1
    regenerate(chosen.strict)
    return 0


if __name__ == "__main__":
    sys.exit(main())
