# SPDX-License-Identifier: Apache-2.0
"""Public names that moved are still where they were."""

from importlib import import_module

import pytest
from nnpa_client._forwards import HOMES

NAMES = [
    (module, home, name)
    for module, homes in HOMES.items()
    for home, names in homes.items()
    for name in names
]


@pytest.mark.parametrize(("module", "home", "name"), NAMES)
def test_a_forwarded_name_is_the_object_of_its_home(module: str, home: str, name: str) -> None:
    """A name is exported by the module that forwards it, and is the object that its home has."""
    assert name in import_module(module).__all__
    assert getattr(import_module(module), name) is getattr(import_module(home), name)


def test_another_name_is_no_attribute() -> None:
    """A module that forwards names has no others."""
    for module in HOMES:
        with pytest.raises(AttributeError, match=f"module '{module}' has no attribute 'nothing'"):
            _ = import_module(module).nothing
