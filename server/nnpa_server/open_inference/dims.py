# SPDX-License-Identifier: Apache-2.0
"""Fix free dims of a model's inputs to the sizes in its configuration.

Source: Triton, "Model Configuration": `input`, `dims`, `max_batch_size`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from nnpa.oip import open_inference_grpc_pb2 as pb
from nnpa_network.program import Port

from nnpa_server.errors import invalid

_MAX_SAID = 16  # dims of a list that an error repeats


def fix_dims(config: pb.ModelConfig, ports: Sequence[Port]) -> tuple[Port, ...]:
    """Return a model's inputs with the configured sizes; raise CallRefused if they do not fit.

    The size of a named dim holds in every input that has the name.
    """
    configured = _configured_dims(config, ports)
    sizes: dict[str, int] = {}
    for port in ports:
        for size, symbol in zip(configured.get(port.name, ()), port.symbols, strict=False):
            if symbol and size > 0 and sizes.setdefault(symbol, size) != size:
                limit = f"{sizes[symbol]}, as in another input"
                raise invalid(f"config.input {port.name}: dim {symbol}", size, limit)
    return tuple(_fixed(port, sizes) for port in ports)


def _configured_dims(
    config: pb.ModelConfig, ports: Sequence[Port]
) -> Mapping[str, tuple[int, ...]]:
    """Return the configured dims by input; -1 leaves a dim free."""
    named, configured = {port.name: port for port in ports}, dict[str, tuple[int, ...]]()
    for index, entry in enumerate(config.input):
        path = f"config.input[{index}]"
        if entry.name not in named or entry.name in configured:
            allowed = f"one of {', '.join(named) or 'none'}, once"
            raise invalid(f"{path}.name", repr(entry.name[:64]), allowed)
        configured[entry.name] = ()
        if entry.dims:
            batch = (-1,) if config.max_batch_size > 0 else ()
            dims = (*batch, *entry.dims)
            _require_fit(f"{path}.dims", dims, named[entry.name].shape)
            configured[entry.name] = dims
    return configured


def _require_fit(path: str, dims: tuple[int, ...], shape: tuple[int, ...]) -> None:
    fits = len(dims) == len(shape) and all(
        dim == -1 or (dim > 0 and size in (-1, dim)) for dim, size in zip(dims, shape, strict=True)
    )
    if not fits:
        limit = f"{list(shape)}, a size or -1 for each -1, the batch left out with max_batch_size"
        raise invalid(path, list(dims[:_MAX_SAID]), limit)


def _fixed(port: Port, sizes: Mapping[str, int]) -> Port:
    """Return an input with the free dims replaced whose sizes are known."""
    shape = tuple(
        sizes.get(symbol, dim) if dim < 0 else dim
        for dim, symbol in zip(port.shape, port.symbols, strict=True)
    )
    symbols = tuple(
        "" if dim >= 0 else symbol for dim, symbol in zip(shape, port.symbols, strict=True)
    )
    return replace(port, shape=shape, symbols=symbols)
