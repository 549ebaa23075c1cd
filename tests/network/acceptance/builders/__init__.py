# SPDX-License-Identifier: Apache-2.0
"""Graphs as exporters write them, with weights from fixed seeds; BUILDERS has them by name."""

from collections.abc import Callable, Mapping

from tests.network.acceptance.builders import (
    attention,
    convolution,
    decoders,
    mobile,
    pictures,
    quantized,
    recurrent,
    tables,
    trees,
)

_MODULES = (
    attention,
    convolution,
    decoders,
    mobile,
    pictures,
    quantized,
    recurrent,
    tables,
    trees,
)
BUILDERS: Mapping[str, Callable[[], bytes]] = {
    name: build for module in _MODULES for name, build in module.MODELS.items()
}
