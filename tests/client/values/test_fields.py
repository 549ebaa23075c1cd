# SPDX-License-Identifier: Apache-2.0
"""Fields of messages from Python's, C's and NumPy's values."""

import numpy as np
import pytest
from nnpa.zdnn.v1.operation_pb2 import Operation
from nnpa_client._values.fields import message_of


@pytest.mark.filterwarnings("ignore:In future, .*bool_:DeprecationWarning")  # NumPy 1, protobuf's C
@pytest.mark.parametrize("truth", [True, np.True_, 1])
def test_a_refusal_names_the_wrong_field_beside_a_bool(truth: object) -> None:
    """A bool of Python, NumPy or C is taken, so the field after it is the one that is refused."""
    with pytest.raises(TypeError, match=r"^site: 5, expected text$"):
        message_of(Operation, {"save_area_misaligned": truth, "site": 5})


def test_text_is_no_bool() -> None:
    """A word in the place of a bool is refused by the field, the value and the expectation."""
    with pytest.raises(TypeError, match=r"^save_area_misaligned: 'yes', expected True or False$"):
        message_of(Operation, {"save_area_misaligned": "yes"})
