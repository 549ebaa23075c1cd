# SPDX-License-Identifier: Apache-2.0
"""Where a value of the model can be read during a run."""

from nnpa_network.building.arrangement import axes_of, regrouped
from nnpa_network.building.builder import Builder
from nnpa_network.building.type_inference import Value
from nnpa_network.program import Place


def places(builder: Builder, value: Value) -> tuple[Place, ...]:
    """Return where a value can be read during a run, one after the other in time."""
    axes = axes_of(value.dims)
    readable = [
        Place(number, value.dims, arrangement.order if builder.in_order(number) else axes)
        for arrangement, number in value.tensors.items()
    ]
    if value.array:
        readable.append(Place(value.array, value.dims, axes))
    if value.view is not None:
        source, permutation = value.view
        for place in places(builder, source):
            if permutation is not None:
                order = tuple(permutation.index(axis) for axis in place.order)
                readable.append(Place(place.id, value.dims, order))
            elif (carried := regrouped(place.order, source.dims, value.dims)) is not None:
                readable.append(Place(place.id, value.dims, carried))
    return tuple(readable)
