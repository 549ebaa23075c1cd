# SPDX-License-Identifier: Apache-2.0
"""Constants of `zdnn.h`, with zDNN's own names and numbers.

Enums that travel come from the wire contract, the other macros and enums from `macros.toml`.
Source: zDNN API Reference 1.2.0, "Common Types and Structs"; `zdnn.h` of zDNN 1.2.0.
"""

from nnpa_client._values.macros import *  # noqa: F403 - every name is public
from nnpa_client._values.macros import BITSHIFT_PREV_LAYER, BITSHIFT_RNN_TYPE, BITSHIFT_USAGE
from nnpa_client._values.wire_enums import *  # noqa: F403 - every name is public


def MSB_BITMASK(field_size: int, pos: int) -> int:  # noqa: N802 - zDNN's name
    """Return the bit at position `pos`, counted from the most significant of `field_size` bits."""
    return 1 << (field_size - 1) >> pos


def CONCAT_RNN_TYPE(info: int) -> int:  # noqa: N802 - zDNN's name
    """Return the RNN_TYPE byte of a concatenation info, in place."""
    return info & 0xFF << BITSHIFT_RNN_TYPE


def CONCAT_PREV_LAYER(info: int) -> int:  # noqa: N802 - zDNN's name
    """Return the PREV_LAYER byte of a concatenation info, in place."""
    return info & 0xFF << BITSHIFT_PREV_LAYER


def CONCAT_USAGE(info: int) -> int:  # noqa: N802 - zDNN's name
    """Return the USAGE byte of a concatenation info, in place."""
    return info & 0xFF << BITSHIFT_USAGE
