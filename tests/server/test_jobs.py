# SPDX-License-Identifier: Apache-2.0
"""Messages between the server's processes: JSON and arrays, and nothing that is unpickled."""

import ast
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType

import mli_emulator
import nnpa_emulator
import nnpa_network
import nnpa_page
import nnpa_server
import pytest
from nnpa_emulator import Guest, find_machine
from nnpa_emulator.custom_machine import Overrides, customise
from nnpa_emulator.machine import LogLevel
from nnpa_network.importing.onnx_import import ImportOptions
from nnpa_network.lowering.placement import Rule
from nnpa_network.reporting.measuring import Settings
from nnpa_server.network.compiling import decode_job, encode_job
from nnpa_server.network.reports import Batch, read_batch
from nnpa_server.tuning.background import decode_orders, encode_orders

SERVER = (nnpa_page, nnpa_server)
EMULATORS = (mli_emulator, nnpa_emulator, nnpa_network)
PICKLING = {"pickle", "_pickle", "marshal", "shelve", "dill", "cloudpickle", "multiprocessing"}
# Processes of one command share the steps of --compile-first: names of ours, and paths.
POOLS = {"nnpa_server/tuning/warmup.py"}


def imports(file: Path) -> Iterator[str]:
    """Yield the top packages that a module imports, anywhere in it."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.partition(".")[0]


@pytest.mark.parametrize(("packages", "pools"), [(SERVER, POOLS), (EMULATORS, set[str]())])
def test_no_process_of_the_server_unpickles(
    packages: Sequence[ModuleType], pools: set[str]
) -> None:
    """No module of the server and of the emulators imports a module that pickles or unpickles."""
    pickling: set[str] = set()
    for package in packages:
        folder = Path(str(package.__file__)).parent
        files = list(folder.rglob("*.py"))
        assert files
        assert not [file for file in files if "allow_pickle=True" in file.read_text()]
        pickling |= {file.relative_to(folder.parent).as_posix() for file in files
                     if PICKLING & set(imports(file))}  # fmt: skip
    assert pickling == pools


def test_a_job_keeps_guest_and_options() -> None:
    """A worker has the guest and the options of the server, whose storage stays with the server."""
    machine = customise(find_machine("z17"), Overrides(max_tensor_size=1 << 20))
    guest = Guest(machine, "1.1.0", True, 3, LogLevel.WARN, "zdnn_add", "jitter", 7, "fp64")
    guest.machine = find_machine("z16")  # what it read of the first machine stays
    guest.sequence = 5
    rules = (Rule("onnx.Relu", "*", "host"),)
    options = ImportOptions(
        strict=True, device_placement=rules, shortcuts=frozenset(("run-buffers",))
    )
    text = encode_job("program", guest=guest, options=options, shapes={"guest": (1, 2), "x": ()})
    assert json.loads(text)[0] == "program"
    verb, facts = decode_job(text)
    guest.sequence = 0
    assert (verb, facts["guest"], facts["options"]) == ("program", guest, options)
    assert facts["shapes"] == {"guest": (1, 2), "x": ()}
    assert facts["guest"].cached == machine.qaf != facts["guest"].machine.qaf
    assert isinstance(facts["guest"].log_level, LogLevel)
    assert hash(facts["options"]) == hash(options)


def test_a_job_keeps_a_batch() -> None:
    """A worker gets every field of a batch unchanged, for comparison with the batch before."""
    batch = Batch("digest", ("telum1",), ("x", "y"), True, 3, Settings(8, 2, True), True, False,
                  {"model": "m.onnx"}, 0.5)  # fmt: skip
    _, facts = decode_job(encode_job("batch", batch=batch))
    assert read_batch(facts["batch"]) == batch


def test_a_job_refuses_facts_of_other_types() -> None:
    """A fact that JSON has no form for is refused where the job is written."""
    with pytest.raises(TypeError, match=r"a fact of type .*Path has no form in a job"):
        encode_job("run", key=Path("key"))


@pytest.mark.shortcut
def test_orders_keep_the_types_of_a_kernel() -> None:
    """The process that compiles gets the types of arguments that the server saw."""
    types = pytest.importorskip("numba.core.types")
    scalars = types.int64, types.uint32, types.float32, types.float64, types.boolean, types.none
    arrays = types.Array(types.uint16, 1, "C"), types.Array(types.float32, 3, "A", readonly=True)
    tuples = types.UniTuple(types.int64, 5), types.Tuple((types.int64, types.float32))
    orders = [("elementwise.binary", (*scalars, *arrays, *tuples)), ("reshape", None)]
    assert decode_orders(encode_orders(orders)) == orders
