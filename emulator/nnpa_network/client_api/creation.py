# SPDX-License-Identifier: Apache-2.0
"""The arguments that create a network: caller, options, memory.

Source: X-CUBE-AI 7.0 Embedded Inference Client API, ai_<name>_create, ai_<name>_init, "Versioning
and checking"; its generator has the same options.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from nnpa_network.client_api.buffer_format import Buffer, MetaInfo
from nnpa_network.client_api.errors import ErrorCode, ErrorType, NetworkRefused
from nnpa_network.client_api.report import TOOLS_API_VERSION, TYPE_SIGNATURES, Version


@dataclass(frozen=True, slots=True)
class Caller:
    """The versions and type sizes that the caller was compiled with; None is not checked.

    `type_sizes` are bytes as `TYPE_SIGNATURES` has them.
    """

    tools_api_version: Version | None = None
    type_sizes: bytes | None = None


@dataclass(frozen=True, slots=True)
class Options:
    """How to create a network.

    `formats` has the formats of inputs and outputs that differ from the model's, by name. `shapes`
    has shapes of inputs with free dims; a free dim without one is 1. `strict` refuses a call that
    would wait. For tests: `failing_node` is the c_idx of a node that fails, `gate_closed` says that
    the device gate is closed.
    """

    allocate_inputs: bool = False
    allocate_outputs: bool = False
    split_weights: bool = False
    strict: bool = True
    formats: Mapping[str, tuple[int, MetaInfo | None]] = field(
        default_factory=dict[str, tuple[int, MetaInfo | None]]
    )
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    failing_node: int | None = None
    gate_closed: bool = False


@dataclass(frozen=True, slots=True)
class NetworkParams:
    """Memory given to init: weights first, activations second, as `ai_network_params`."""

    params: Buffer
    activations: Buffer


@dataclass(frozen=True, slots=True)
class Provenance:
    """The origin of a network as its report states it; `created` in seconds since the epoch."""

    c_name: str
    version: Version
    revision: str
    model_datetime: str
    compile_datetime: str
    created: float = 0.0


def require_compatible(caller: Caller, options: Options) -> None:
    """Refuse a caller of another version, with other types, or whose device gate is closed."""
    version = caller.tools_api_version
    if version is not None and version != TOOLS_API_VERSION:
        text = f"tools_api_version is {version}, must be {TOOLS_API_VERSION}"
        kind = ErrorType.TOOL_PLATFORM_API_MISMATCH
        raise NetworkRefused(kind, ErrorCode.NETWORK, text)
    sizes = bytes(TYPE_SIGNATURES.values())
    if caller.type_sizes is not None and caller.type_sizes != sizes:
        text = f"type_sizes are {caller.type_sizes.hex()}, must be {sizes.hex()}"
        raise NetworkRefused(ErrorType.TYPES_MISMATCH, ErrorCode.NETWORK, text)
    if options.gate_closed:
        raise NetworkRefused(
            ErrorType.CREATE_FAILED, ErrorCode.NETWORK, "the device gate is closed"
        )
