# SPDX-License-Identifier: Apache-2.0
"""Misuse that the emulator's types exclude and C's types allow."""

from pathlib import Path

from mli_emulator import Options

from tests.libmli import toolchain


def test_misuse_that_only_c_can_express(tmp_path: Path) -> None:
    """Numbers out of range, missing arrays and sizes that overflow have their status, in C."""
    source = toolchain.PROGRAMS / "misuse.c"
    program = toolchain.sanitized(source, tmp_path / "misuse", Options())
    assert toolchain.runs_sanitized(program, Options()) == ""
