# SPDX-License-Identifier: Apache-2.0
"""The machines: query blocks byte by byte, queries, versions, custom machines, moved guests.

QAF contents: hardware signatures of the zDNN library, per-machine constants of onnx-mlir. Versions:
zDNN API Reference 1.2.0, "Validating the environment at runtime", whose statements are tests here.
"""

import numpy as np
import pytest
from nnpa_emulator import (
    FUNCTIONS,
    MACHINES,
    Guest,
    Machine,
    ProgramCheck,
    Status,
    TensorDesc,
    Ztensor,
    find_machine,
    run,
)
from nnpa_emulator.custom_machine import Overrides, customise
from nnpa_emulator.machine import (
    DEFAULT_LIBRARY,
    DEFAULT_MACHINE,
    LIBRARY_VERSIONS,
    FunctionCode,
    QueryResult,
    hardware_version,
    page_memory,
)
from nnpa_emulator.ztensor import DataLayouts, DataTypes, getsize_ztensor

WITHOUT = ("z15", "telum1-nonnpa", "telum2-nonnpa")
# Offset of each byte that is not zero.
TELUM1_BLOCK = {
    0: 0x80, 2: 0xFC, 4: 0xC0, 6: 0x78, 8: 0x80, 10: 0xC0, 12: 0xC0, 14: 0xE0,
    32: 0x80, 48: 0x80, 52: 0xC0, 62: 0x80, 67: 0x01, 72: 0x60,
}  # fmt: skip
TELUM2_BLOCK = {
    0: 0x80, 2: 0xFC, 4: 0xF0, 6: 0x7C, 8: 0xF0, 10: 0xC0, 12: 0xC0, 14: 0xF0, 30: 0xC0,
    32: 0xC0, 48: 0x82, 49: 0xA0, 52: 0xE0, 55: 0x01, 62: 0x80, 67: 0x01, 72: 0x60,
    90: 0x80, 94: 0x80, 97: 0x10, 101: 0x20,
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "filled"),
    [("telum1", TELUM1_BLOCK), ("telum2", TELUM2_BLOCK), *((name, {}) for name in WITHOUT)],
)
def test_query_block(name: str, filled: dict[int, int]) -> None:
    """The block equals the machine's 256 bytes, byte by byte."""
    expected = bytes(filled.get(at, 0) for at in range(256))
    assert MACHINES[name].qaf.block() == expected


def test_function_codes() -> None:
    """Telum I has the 21 functions of zDNN 1.0, Telum II nine more; each has a name."""
    old = (0, 16, 17, 18, 19, 20, 21, 32, 33, 49, 50, 51, 52, 64, 80, 81, 96, 97, 112, 113, 114)
    new = (34, 35, 53, 65, 66, 67, 115, 240, 241)
    assert MACHINES["telum1"].qaf.function_codes() == old
    assert MACHINES["telum2"].qaf.function_codes() == tuple(sorted(old + new))
    assert {int(code) for code in FunctionCode} == set(old + new)


def test_names_of_machines() -> None:
    """The machines and aliases that outsiders rely on exist, and the default is Telum II."""
    assert list(MACHINES) == ["telum1", "telum2", "z15", "telum1-nonnpa", "telum2-nonnpa"]
    assert find_machine("z16") is MACHINES["telum1"]
    assert find_machine("z17") is MACHINES["telum2"]
    assert (DEFAULT_MACHINE, DEFAULT_LIBRARY) == ("telum2", "1.2.0")
    with pytest.raises(KeyError, match="z14"):
        find_machine("z14")


def test_library_versions() -> None:
    """The releases that a session may choose have the numbers 0x00[major][minor][patch]."""
    assert LIBRARY_VERSIONS == {
        "1.0.0": 0x010000, "1.0.1": 0x010001, "1.1.0": 0x010100,
        "1.1.1": 0x010101, "1.1.2": 0x010102, "1.2.0": 0x010200,
    }  # fmt: skip


# Machine, library, what zdnn_get_library_version, zdnn_is_nnpa_installed and
# zdnn_get_max_runnable_version answer, and zdnn_is_version_runnable of 1.1.0 and 1.0.0.
EXAMPLES = [
    ("telum1", "1.1.0", 0x00010100, True, 0x000100FF, False, True),
    ("telum2", "1.1.0", 0x00010100, True, 0x000101FF, True, True),
    ("telum2", "1.0.0", 0x00010000, True, 0x000100FF, False, True),
]


@pytest.mark.parametrize(("machine", "library", "version", "nnpa", "most", "v11", "v10"), EXAMPLES)
def test_examples_of_validating_the_environment(
    machine: str, library: str, version: int, nnpa: bool, most: int, v11: bool, v10: bool
) -> None:
    """The three systems of the API reference answer as it says."""
    guest = Guest(MACHINES[machine], library)
    assert guest.library_version == version
    assert _ask(guest, "is_nnpa_installed") is nnpa
    assert _ask(guest, "get_max_runnable_version") == most
    assert _ask(guest, "is_version_runnable", ver_num=0x00010100) is v11
    assert _ask(guest, "is_version_runnable", ver_num=0x00010000) is v10


def _ask(guest: Guest, name: str, **arguments: object) -> object:
    outcome = run(guest, name, arguments)
    assert outcome.status == Status.ZDNN_OK
    return outcome.value


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("library", LIBRARY_VERSIONS)
def test_versions_on_every_machine(machine: str, library: str) -> None:
    """The runnable API is the lesser of library and machine; its patch is not looked at."""
    guest = Guest(MACHINES[machine], library)
    hardware = {"telum1": 0, "telum2": 1}.get(machine, -1)
    minor = min(hardware, int(library.split(".")[1]))
    most = 0x010000 | minor << 8 | 0xFF if minor >= 0 else 0
    assert _ask(guest, "get_max_runnable_version") == most
    for version in (0x010000, 0x0100FF, 0x010100, 0x0101FF, 0x010200, 0x010300, 0x020000, 0, 0xFF):
        runnable = version >> 16 == 1 and (version >> 8 & 0xFF) <= minor
        assert _ask(guest, "is_version_runnable", ver_num=version) is runnable, hex(version)
        same = _ask(guest, "is_version_runnable", ver_num=0xAB000000 | version)
        assert same is runnable, "the top byte is ignored"


@pytest.mark.parametrize("machine", WITHOUT)
def test_without_nnpa_nothing_is_installed(machine: str) -> None:
    """Without NNPA masks other than 0 are not installed and maxima are 0; it is no error."""
    guest = Guest(MACHINES[machine])
    assert _ask(guest, "is_nnpa_installed") is False
    assert _ask(guest, "is_nnpa_function_installed", function_codes=[0]) is False
    assert _ask(guest, "is_nnpa_datatype_installed", types_bitmask=0x8000) is False
    assert _ask(guest, "is_nnpa_datatype_installed", types_bitmask=0) is True
    assert _ask(guest, "get_nnpa_max_tensor_size") == 0
    assert _ask(guest, "get_nnpa_max_dim_idx_size") == 0
    assert [_ask(guest, "get_max_for_dim", dimension=n) for n in range(6)] == [0] * 6


@pytest.mark.parametrize("count", range(1, 7))
def test_count_of_functions(count: int) -> None:
    """Only the first `count` codes are looked at, each by its low 16 bits."""
    guest = Guest(MACHINES["telum2"])
    codes = [16, 65536 + 17, 240, 241, 256 + 16, 16]
    answer = _ask(guest, "is_nnpa_function_installed", function_codes=codes, count=count)
    assert answer is (count < 5)


def test_parameter_block_formats_are_bytes() -> None:
    """Formats are looked at by their low 8 bits; above 127 none is installed."""
    guest = Guest(MACHINES["telum2"])
    answers = [
        _ask(guest, "is_nnpa_parmblk_fmt_installed", format_codes=[item])
        for item in (0, 1, 2, 127, 128, 255, 256, 257, 258)
    ]
    assert answers == [True, True, False, False, False, False, True, True, False]


@pytest.mark.parametrize("bit", range(16))
def test_data_types_bit_by_bit(bit: int) -> None:
    """A type's bit counts from the left of 16; Telum I knows 0, Telum II also 6, 8 and 10."""
    mask = 0x8000 >> bit
    for machine, types in (("telum1", (0,)), ("telum2", (0, 6, 8, 10))):
        guest = Guest(MACHINES[machine])
        assert _ask(guest, "is_nnpa_datatype_installed", types_bitmask=mask) is (bit in types)


@pytest.mark.parametrize("bit", range(32))
def test_layout_formats_bit_by_bit(bit: int) -> None:
    """A format's bit counts from the left of 32; Telum I knows 0 and 1, Telum II also 2 and 31."""
    mask = 0x80000000 >> bit
    for machine, formats in (("telum1", (0, 1)), ("telum2", (0, 1, 2, 31))):
        guest = Guest(MACHINES[machine])
        answer = _ask(guest, "is_nnpa_layout_fmt_installed", layout_bitmask=mask)
        assert answer is (bit in formats)


@pytest.mark.parametrize("bit", range(16))
def test_conversions_bit_by_bit(bit: int) -> None:
    """DLFLOAT16 converts to BFP tiny (1) and short (2); another type converts to nothing."""
    mask = 0x8000 >> bit
    for machine in ("telum1", "telum2"):
        guest = Guest(MACHINES[machine])
        ask = "is_nnpa_conversion_installed"
        assert _ask(guest, ask, type=0, format_bitmask=mask) is (bit in (1, 2))
        assert _ask(guest, ask, type=6, format_bitmask=mask) is False
    assert _ask(Guest(MACHINES["telum2"]), ask, type=6, format_bitmask=0) is False


def test_masks_are_truncated() -> None:
    """C's uint16_t and uint32_t parameters drop higher bits."""
    guest = Guest(MACHINES["telum1"])
    assert _ask(guest, "is_nnpa_datatype_installed", types_bitmask=0x18000) is True
    assert _ask(guest, "is_nnpa_layout_fmt_installed", layout_bitmask=0x1_80000000) is True
    assert _ask(guest, "is_nnpa_conversion_installed", type=0, format_bitmask=0x16000) is True


def test_cache_and_machine() -> None:
    """Queries answer from the copy of the block; only is_nnpa_installed asks the machine."""
    guest = Guest(MACHINES["telum2"])
    guest.machine = MACHINES["z15"]
    assert _ask(guest, "is_nnpa_installed") is False
    assert _ask(guest, "get_max_for_dim", dimension=1) == 2097152
    _ask(guest, "init")
    assert _ask(guest, "get_max_for_dim", dimension=1) == 2097152, "init has nothing to read"
    refused = run(guest, "refresh_nnpa_query_result", {})
    assert refused.status == Status.ZDNN_UNAVAILABLE_FUNCTION
    assert _ask(guest, "get_max_runnable_version") == 0x0101FF
    guest.machine = MACHINES["telum1"]
    assert run(guest, "refresh_nnpa_query_result", {}).status == Status.ZDNN_OK
    assert _ask(guest, "get_max_runnable_version") == 0x0100FF


def test_newer_machines_match_the_newest_signature() -> None:
    """A machine has the newest version whose bits it has; one bit less is the one before."""
    full = MACHINES["telum2"].qaf
    assert hardware_version(full) == 0x010100
    for field, code in (("functions", 240), ("functions", 34)):
        less = customise(MACHINES["telum2"], Overrides(removed_functions=frozenset((code,))))
        assert hardware_version(less.qaf) == 0x010000, field
    assert hardware_version(QueryResult()) == 0
    one_less = customise(MACHINES["telum1"], Overrides(removed_functions=frozenset((16,))))
    assert hardware_version(one_less.qaf) == 0


def test_maxima_of_dimensions_are_no_part_of_the_signature() -> None:
    """Per-dimension maxima do not decide the version, MDIS and MTS do."""
    telum2 = MACHINES["telum2"]
    assert hardware_version(customise(telum2, Overrides(max_dims=(1, 1, 1, 1))).qaf) == 0x010100
    assert hardware_version(customise(telum2, Overrides(max_dim_idx_size=64)).qaf) == 0
    assert hardware_version(customise(telum2, Overrides(max_tensor_size=4096)).qaf) == 0


def test_custom_machine() -> None:
    """A custom machine changes the overridden fields and keeps the rest of its model."""
    custom = customise(
        MACHINES["telum2"],
        Overrides(max_dims=(None, 8, 64, 0), max_tensor_size=16384, data_types=0x8000),
    )
    assert custom.name == "telum2-custom"
    assert custom.qaf.max_dims == (32768, 8, 64, 0)
    assert [custom.qaf.max_for_dim(n) for n in (4, 3, 2, 1)] == [32768, 8, 64, 32768]
    assert custom.qaf.block()[64:72] == (16384).to_bytes(8, "big")
    assert custom.qaf.functions == MACHINES["telum2"].qaf.functions
    assert customise(MACHINES["telum1"], Overrides()) is MACHINES["telum1"]


REFUSED = [
    (Overrides(max_dim_idx_size=0), "max_dim_idx_size: 0"),
    (Overrides(max_dim_idx_size=32769), "max_dim_idx_size: 32769"),
    (Overrides(max_dims=(2097153, None, None, None)), "max_dim4: 2097153"),
    (Overrides(max_dims=(None, None, None, -1)), "max_dim1: -1"),
    (Overrides(max_tensor_size=4095), "max_tensor_size: 4095"),
    (Overrides(max_tensor_size=(1 << 32) + 1), "max_tensor_size: 4294967297"),
    (Overrides(data_types=0x4000), "data_types_mask: 0x4000"),
    (Overrides(layout_formats=0x10000000), "layout_formats_mask: 0x10000000"),
    (Overrides(parmblk_formats=1 << 125), "parmblk_formats_mask"),
    (Overrides(added_functions=frozenset((48,))), "added_functions: 48"),
    (Overrides(removed_functions=frozenset((0,))), "NNPA_QAF"),
]


@pytest.mark.parametrize(("overrides", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_impossible_machines_are_refused(overrides: Overrides, message: str) -> None:
    """An override outside its range is refused with the field and the value."""
    with pytest.raises(ValueError, match=message):
        customise(MACHINES["telum2"], overrides)


def test_a_machine_without_nnpa_cannot_be_customised() -> None:
    """There is no query block to change where there is no NNPA."""
    with pytest.raises(ValueError, match="z15 has no NNPA"):
        customise(MACHINES["z15"], Overrides(max_tensor_size=4096))


def _small(machine: Machine, *dims: int) -> int:
    desc = TensorDesc(DataLayouts.ZDNN_NHWC, 0, 0, dims[0], dims[1], dims[2], dims[3])
    ztensor = Ztensor(TensorDesc(), desc)
    return run(Guest(machine), "allochelper_ztensor", {"ztensor": ztensor}).status


def test_limits_with_kilobytes() -> None:
    """Size limits can be met and exceeded with a few kilobytes on a custom machine."""
    small = customise(MACHINES["telum2"], Overrides(max_dims=(2, 3, 40, 70), max_tensor_size=8192))
    assert _small(small, 2, 1, 1, 64) == Status.ZDNN_OK
    assert _small(small, 1, 1, 1, 70) == Status.ZDNN_OK
    for dims in ((3, 1, 1, 1), (1, 4, 1, 1), (1, 1, 41, 1), (1, 1, 1, 71), (1, 3, 1, 1)):
        assert _small(small, *dims) == Status.ZDNN_INVALID_SHAPE


def _tensor(*, transformed: bool = False) -> Ztensor:
    user = TensorDesc(DataLayouts.ZDNN_1D, 0, DataTypes.FP32, 0, 0, 0, 2)
    desc = TensorDesc(DataLayouts.ZDNN_NHWC, 0, 0, 1, 1, 1, 2)
    size = getsize_ztensor(desc)
    return Ztensor(user, desc, size, np.zeros(size, np.uint8), transformed)


@pytest.mark.parametrize("machine", WITHOUT)
def test_conversion_instructions(machine: str) -> None:
    """Reading DLFLOAT16 needs vector instructions: a z16 without NNPA has them, a z15 has not."""
    guest = Guest(MACHINES[machine])
    arguments = {"ztensor": _tensor(transformed=True)}
    if machine == "z15":
        with pytest.raises(ProgramCheck, match="operation exception"):
            run(guest, "getrange_ztensor", arguments)
    else:
        assert run(guest, "getrange_ztensor", arguments).status == Status.ZDNN_OK


def test_transform_moved_to_a_z15() -> None:
    """A guest that remembers a Telum II fails on a z15 where the first conversion is executed."""
    guest = Guest(MACHINES["telum2"])
    guest.machine = MACHINES["z15"]
    with pytest.raises(ProgramCheck, match="operation exception") as caught:
        run(guest, "transform_ztensor", {"ztensor": _tensor(), "data": (bytes(8),)})
    assert caught.value.kind == "operation"


def test_every_query_is_a_function() -> None:
    """The thirteen environment functions are callable by name."""
    names = {name for name, entry in FUNCTIONS.items() if not entry.tensors}
    assert names == {
        "init", "is_nnpa_installed", "is_nnpa_function_installed", "is_nnpa_parmblk_fmt_installed",
        "is_nnpa_datatype_installed", "is_nnpa_layout_fmt_installed",
        "is_nnpa_conversion_installed", "get_nnpa_max_dim_idx_size", "get_max_for_dim",
        "get_nnpa_max_tensor_size", "refresh_nnpa_query_result", "is_version_runnable",
        "get_max_runnable_version",
    }  # fmt: skip


@pytest.mark.parametrize("size", [4096, 8192, 1 << 20])
def test_memory_is_on_pages(size: int) -> None:
    """Sticks are allocated zero-filled on a 4096-byte boundary."""
    memory = page_memory(size)
    assert memory is not None
    assert memory.ctypes.data % 4096 == 0
    assert memory.nbytes == size
    assert not memory.any()


def test_memory_that_is_not_there() -> None:
    """A request beyond all memory is answered with None, not with an exception."""
    assert page_memory(1 << 62) is None
