# SPDX-License-Identifier: Apache-2.0
"""Go: messages and stubs by protoc's plugins, which `client/go/go.mod` pins; verbs by template."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from sdk.rendering import ROOT, File, Messages, Sdk, camel, pascal
from sdk.verbs import PROTOS

HOME = ROOT / "client" / "go"
MODULE = "nnpa.dev/nnpa"
PLUGINS = {
    "protoc-gen-go": "google.golang.org/protobuf/cmd/protoc-gen-go",
    "protoc-gen-go-grpc": "google.golang.org/grpc/cmd/protoc-gen-go-grpc",
}


def _missing() -> str:
    """Return the name of a missing tool: Go, or protoc's plugins without a network; else ""."""
    if not shutil.which("go"):
        return "Go"
    build = ["go", "build", "-o", os.devnull, *PLUGINS.values()]
    done = subprocess.run(build, cwd=HOME, capture_output=True, check=False)
    return "Go modules of protoc's plugins" if done.returncode else ""


def _package(proto: str) -> str:
    """Return the import path and name of a proto's Go package: nnpa/zdnn/v1 is zdnnv1."""
    folder = Path(proto).parent
    return f"{MODULE}/gen/{folder};{''.join(folder.parts[1:])}"


def _write(target: Path) -> None:
    protos = sorted(str(path.relative_to(PROTOS)) for path in PROTOS.glob("nnpa/**/*.proto"))
    with tempfile.TemporaryDirectory() as tools:
        build = ["go", "build", "-o", f"{tools}{os.sep}", *PLUGINS.values()]
        subprocess.run(build, cwd=HOME, check=True)
        plugins = [f"--plugin={name}={Path(tools) / name}" for name in PLUGINS]
        options = [
            option
            for kind in ("go", "go-grpc")
            for option in (
                f"--{kind}_out={target}",
                f"--{kind}_opt=module={MODULE}/gen",
                *(f"--{kind}_opt=M{proto}={_package(proto)}" for proto in protos),
            )
        ]
        command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{PROTOS}", *plugins, *options]
        subprocess.run([*command, *protos], cwd=PROTOS, check=True)


def protoc_name(name: str) -> str:
    """Return a name as protoc-gen-go spells it: a small letter behind a digit becomes capital."""
    return re.sub(r"(?<=\d)[a-z]", lambda match: match[0].upper(), pascal(name))


def argument(name: str) -> str:
    """Return a parameter's name in Go, where `type` is a word of the language."""
    return "kind" if name == "type" else camel(name)


def macro_type(name: str) -> str:
    """Return the type of a macro and a space; "" for a number of any type."""
    if name.startswith("QUERY_"):
        return "uint32 "
    return "ConcatInfo " if name.startswith(("RNN_TYPE_", "PREV_LAYER_", "USAGE_")) else ""


SPELLING = {
    "machines": "`nnpa info`",
    "library": "Options.Library",
    "free": "FreeZtensorBuffer",
    "transforms": "TransformZtensor and TransformOrigtensor",
    "precheck": "Options.Precheck",
    "token": "Options.Token",
    "timeout": "Give the context more time",
    "offer": "offer the method",
    "suite": "",
}


GO = Sdk(
    name="go",
    home=HOME,
    files=(
        File("zdnn/verbs.gen.go", "go.go.j2"),
        File("zdnn/constants.gen.go", "go_constants.go.j2"),
        File("zdnn/texts.gen.go", "go_texts.go.j2"),
        File("mli/kernels.gen.go", "go_mli.go.j2"),
        File("testee/verbs.gen.go", "go_testee.go.j2"),
    ),
    filters={"argument": argument, "macro_type": macro_type, "protoc_name": protoc_name},
    messages=Messages("gen", _missing, _write),
    spelling=SPELLING,
)
