# SPDX-License-Identifier: Apache-2.0
"""The modules of the client that an addition runs through, without and with shortcuts."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import nnpa_client
import numpy as np
import pytest
from nnpa_client import connect, zdnn

from tests.client.server_process import serving

CLIENT = Path(nnpa_client.__file__).parent
VERB = {"zdnn/_elementwise.py", "_guest/verb.py", "_guest/guest.py"}
PLAIN = VERB | {"_server/transport.py"}
SHORTCUTS = {
    f"_server/shortcuts/{name}.py" for name in ("out_of_band_arrays", "stream", "plain_socket")
}


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The Unix socket of a server."""
    with serving([f"unix:{tmp_path_factory.mktemp('nnpa') / 'nnpa.sock'}"]) as targets:
        yield targets[0]


def modules_of(call: Callable[[], object]) -> set[str]:
    """Return the modules of the client of which a function runs during a call."""
    files: set[str] = set()

    def note(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call":
            files.add(frame.f_code.co_filename)

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return {
        str(Path(file).relative_to(CLIENT)) for file in files if Path(file).is_relative_to(CLIENT)
    }


@pytest.mark.parametrize(("plain", "way"), [(True, PLAIN), (False, VERB | SHORTCUTS)])
def test_an_addition_runs_through_few_modules(target: str, plain: bool, way: set[str]) -> None:
    """A call does not run through modules that it does not need, such as tickets and reports."""
    with connect(target, plain=plain) as session:
        a, b, out = (session.ztensor(np.ones((7, 9), np.float32)) for _ in range(3))
        zdnn.add(a, b, out)
        assert modules_of(lambda: zdnn.add(a, b, out)) == way
