# SPDX-License-Identifier: Apache-2.0
"""The sources of models: the operator's folder, and requests that carry a file.

A folder holds `<name>.onnx` files and, in the layout of Triton's model repository,
`<name>/<version>/model.onnx` with an optional `<name>/config.pbtxt`. A client's name is compared
with the names in the folder; no path is built from it.
Sources: Triton, "Model Repository", "Model Configuration", "Model Repository Extension".
"""

import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf import json_format, text_format
from google.protobuf.message import Error as MessageError
from nnpa.oip import open_inference_grpc_pb2 as pb
from nnpa.zdnn.v1 import status_pb2 as wire
from nnpa_emulator.machine import DEFAULT_MACHINE, find_machine, machine_names
from nnpa_files import external_data
from nnpa_network.placements import DEFAULT_PLACEMENT, PLACEMENTS, Placement

from nnpa_server.errors import CallRefused, invalid
from nnpa_server.open_inference.owners import OPERATOR
from nnpa_server.open_inference.saved_models import SavedModel

NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_FILE = re.compile(r"file:([0-9]{1,9})/[A-Za-z0-9._-]{1,64}\.onnx")
_VERSION = re.compile(r"[1-9][0-9]{0,8}")
_DEFAULT_FILE = "model.onnx"
_BACKENDS = ("", "onnxruntime", "nnpa")
_PLATFORMS = ("", "onnxruntime_onnx", "onnx_onnxv1")
_MAX_CONFIG = 1 << 20
_MAX_SHOWN = 80  # characters of a client's name in an error


@dataclass(frozen=True, slots=True)
class Options:
    """The options of hosting in a configuration's `parameters`."""

    machine: str = DEFAULT_MACHINE
    strict: bool = False  # refuse a model with nodes that run on the host
    offload_integer: bool = False  # run integer products on the accelerator: they are not exact
    saturate: bool = True  # clip values to the range of DLFLOAT16
    placement: Placement = DEFAULT_PLACEMENT


_FLAGS = ("strict", "offload_integer", "saturate")
_TRUTH = {"true": True, "1": True, "false": False, "0": False}


@dataclass(frozen=True, slots=True)
class Source:
    """A model to load: files or contents by version, configuration, owner."""

    name: str
    versions: Mapping[str, Path | bytes]
    config: pb.ModelConfig
    owner: str = OPERATOR

    def chosen(self) -> dict[str, Path | bytes]:
        """Return the versions that the configuration's policy chooses, by default the newest."""
        ordered = sorted(self.versions, key=int, reverse=True)
        policy = self.config.version_policy
        match policy.WhichOneof("policy_choice"):
            case "all":
                versions = ordered
            case "specific":
                versions = [str(version) for version in policy.specific.versions]
                for version in versions:
                    if version not in self.versions:
                        allowed = f"one of {', '.join(reversed(ordered))}"
                        raise invalid("config.version_policy.specific", version, allowed)
            case _:
                versions = ordered[: max(1, policy.latest.num_versions)]
        return {version: self.versions[version] for version in versions}


def scan(folder: Path, only: str = "") -> dict[str, Path]:
    """Return the files and directories of a folder's models by name, or of `only` one model."""
    models: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        if only and path.name not in (only, f"{only}.onnx"):
            continue
        is_file = path.suffix == ".onnx" and path.is_file()
        name = path.stem if is_file else path.name
        if (is_file or _may_have_versions(path)) and NAME.fullmatch(name):
            models[name] = path
    return models


def _may_have_versions(path: Path) -> bool:
    """Return True if a directory may be a model's; an unreadable one fails when it is loaded."""
    try:
        return bool(_version_folders(path))
    except OSError:
        return True


def _version_folders(path: Path) -> list[Path]:
    """Return the folders of a directory that are named as versions; none for a file."""
    entries = path.iterdir() if path.is_dir() else ()
    return [entry for entry in entries if _VERSION.fullmatch(entry.name)]


def from_folder(folder: Path, name: str, override: str = "") -> Source | None:
    """Return the model of a name, or None; `override` is a JSON config for it."""
    path = scan(folder, name).get(name)
    if path is None:
        return None
    if path.is_file():
        return Source(name, {"1": path}, _read_json(name, override))
    text = path / "config.pbtxt"
    config = _read_json(name, override) if override else _read_text(name, text)
    filename = config.default_model_filename or _DEFAULT_FILE
    if NAME.fullmatch(filename) is None or not filename.endswith(".onnx"):
        path_of = "config.default_model_filename"
        raise invalid(path_of, repr(filename[:64]), "the name of an .onnx file")
    files = [version / filename for version in _version_folders(path)]
    versions = {file.parent.name: file for file in files if file.is_file()}
    if not versions:
        raise invalid(f"model {name}", f"no version with {filename}", f"<version>/{filename}")
    return Source(name, versions, config)


def from_request(name: str, override: str, files: Mapping[str, bytes], owner: str) -> Source:
    """Return the model in a request; `files` are named "file:<version>/<file>.onnx"."""
    versions: dict[str, bytes] = {}
    for key, contents in files.items():
        match = _FILE.fullmatch(key)
        if match is None or _VERSION.fullmatch(match[1]) is None:
            raise invalid("parameters", repr(key[:80]), "config or file:<version>/<file>.onnx")
        versions[match[1]] = contents
    if not override:
        raise invalid("parameters", "file: without config", "both, as the protocol has it")
    return Source(name, versions, _read_json(name, override), owner)


def from_saved(model: SavedModel, override: str = "") -> Source:
    """Return a saved model; `override` is a JSON config for it."""
    config = _read_json(model.name, override or model.config)
    return Source(model.name, dict(model.files), config, model.owner)


def to_save(source: Source) -> SavedModel:
    """Return the model to save for a client's source: the versions that its policy chooses."""
    config = json_format.MessageToJson(source.config, indent=None)
    files = {version: data for version, data in source.chosen().items() if isinstance(data, bytes)}
    return SavedModel(source.name, source.owner, config, files)


def _read_json(name: str, text: str) -> pb.ModelConfig:
    config = pb.ModelConfig()
    if len(text) > _MAX_CONFIG:
        raise invalid("config", f"{len(text)} characters", f"at most {_MAX_CONFIG}")
    if text:
        try:
            json_format.Parse(text, config, ignore_unknown_fields=True)
        except (MessageError, json_format.ParseError, RecursionError, UnicodeError) as error:
            raise invalid("config", "no JSON of a ModelConfig", _line(error)) from error
    return _checked(name, config)


def _read_text(name: str, path: Path) -> pb.ModelConfig:
    config = pb.ModelConfig()
    if path.is_file():
        if path.stat().st_size > _MAX_CONFIG:
            raise invalid("config.pbtxt", f"{path.stat().st_size} bytes", f"at most {_MAX_CONFIG}")
        try:
            text = path.read_text(encoding="utf-8")
            text_format.Parse(text, config, allow_unknown_field=True)
        except (text_format.ParseError, UnicodeError) as error:
            raise invalid("config.pbtxt", "no text of a ModelConfig", _line(error)) from error
    return _checked(name, config)


def _line(error: Exception) -> str:
    return f"one ({str(error).splitlines()[0][:120]})"


def _checked(name: str, config: pb.ModelConfig) -> pb.ModelConfig:
    for field, value, allowed in (
        ("name", config.name, ("", name)),
        ("backend", config.backend, _BACKENDS),
        ("platform", config.platform, _PLATFORMS),
    ):
        if value not in allowed:
            raise invalid(f"config.{field}", repr(value[:64]), _one_of(allowed))
    options_of(config)
    return config


def _one_of(allowed: tuple[str, ...]) -> str:
    return f"one of {', '.join(repr(choice) for choice in allowed)}"


def options_of(config: pb.ModelConfig) -> Options:
    """Return the options of hosting; raise CallRefused for invalid parameters."""
    chosen: dict[str, Any] = {}
    for key, parameter in config.parameters.items():
        path, value = f"config.parameters.{key[:64]}", parameter.string_value
        if key == "machine":
            chosen[key] = _machine(path, value)
        elif key == "placement":
            if value not in PLACEMENTS:
                raise invalid(path, repr(value[:64]), _one_of(PLACEMENTS))
            chosen[key] = value
        elif key in _FLAGS:
            if value.lower() not in _TRUTH:
                raise invalid(path, repr(value[:64]), "true or false")
            chosen[key] = _TRUTH[value.lower()]
    return Options(**chosen)


def _machine(path: str, value: str) -> str:
    try:
        return find_machine(value).name
    except KeyError:
        raise invalid(path, repr(value[:64]), f"one of {machine_names()}") from None


def read(source: Path | bytes, limit: int, name: str) -> bytes:
    """Return a model's bytes, at most `limit`, including external data in the folder."""
    size = len(source) if isinstance(source, bytes) else source.stat().st_size
    if size > limit:
        raise invalid(f"model {name}", f"{size} bytes", f"at most {limit}")
    if isinstance(source, bytes):
        return source
    try:
        return external_data.read_model(source, limit)
    except external_data.ExternalDataError as error:
        text, reason = f"model {name}: {error}", wire.ERROR_REASON_MODEL_INVALID
        raise CallRefused(reason, text, node="", why=str(error)) from error


@contextmanager
def reading(name: str) -> Generator[None]:
    """Turn OSError into CallRefused for a model whose files cannot be read."""
    try:
        yield
    except OSError as error:
        shown, why = name[:_MAX_SHOWN], error.strerror or type(error).__name__
        text = f"model {shown} cannot be read: {why}"
        raise CallRefused(wire.ERROR_REASON_MODEL_UNAVAILABLE, text, model=shown) from error
