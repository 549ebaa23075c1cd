# SPDX-License-Identifier: Apache-2.0
"""The report of a network: versions, sizes, descriptors of inputs and outputs.

Source: X-CUBE-AI 7.0 Embedded Inference Client API 1.1.0, ai_<name>_get_info and "Versioning and
checking"; fields as `ai_network_report` of its public header has them.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from nnpa_network.client_api.buffer_format import Buffer

MAX_N_MACC = 0xFFFF_FFFF  # n_macc has 32 bits in API 1.1.0


@dataclass(frozen=True, slots=True)
class Version:
    """A version: `ai_platform_version`, its fourth byte always 0."""

    major: int
    minor: int
    micro: int

    @property
    def word(self) -> int:
        """The version as C packs it: major in the highest byte, the lowest byte 0."""
        return self.major << 24 | self.minor << 16 | self.micro << 8

    def __str__(self) -> str:
        """Return "1.4.0"."""
        return f"{self.major}.{self.minor}.{self.micro}"


# Source: X-CUBE-AI 7.0, "Versioning and checking", <network>_config.h.
TOOL_VERSION = Version(7, 0, 0)
TOOLS_API_VERSION = Version(1, 4, 0)
API_VERSION = Version(1, 1, 0)

# sizeof of the scalar types in bytes, bit 7 set for unsigned ones: ai_custom_type_signature. What a
# client was compiled with must be the same, else its buffers mean something else.
TYPE_SIGNATURES: Mapping[str, int] = {
    "ai_i8": 0x01,
    "ai_u8": 0x81,
    "ai_i16": 0x02,
    "ai_u16": 0x82,
    "ai_i32": 0x04,
    "ai_u32": 0x84,
    "ai_i64": 0x08,
    "ai_u64": 0x88,
    "ai_float": 0x04,
    "ai_size": 0x84,
}


@dataclass(frozen=True, slots=True)
class Report:
    """A network's own description: `ai_network_report`.

    `model_signature` are 32 hex digits of the model's hash, `runtime_revision` and `tool_revision`
    are "nnpa <version>". Before init no buffer has an address. `n_macc` saturates at 32 bits;
    `n_macc_64` does not. `n_nodes` are those that run; `signature` is 0, as the runtime leaves it.
    """

    model_name: str
    model_signature: str
    model_datetime: str
    compile_datetime: str
    runtime_revision: str
    runtime_version: Version
    tool_revision: str
    n_macc_64: int
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    activations: Buffer
    params: Buffer
    n_nodes: int
    tool_version: Version = TOOL_VERSION
    tool_api_version: Version = TOOLS_API_VERSION
    api_version: Version = API_VERSION
    interface_api_version: Version = API_VERSION
    signature: int = 0

    @property
    def n_macc(self) -> int:
        """Multiply-accumulates of one run, at most 2^32 - 1."""
        return min(self.n_macc_64, MAX_N_MACC)
