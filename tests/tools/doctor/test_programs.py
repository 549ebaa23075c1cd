# SPDX-License-Identifier: Apache-2.0
"""The doctor finds the seeded fault of each program, and nothing in the examples."""

import re
from pathlib import Path

import pytest
from nnpa_client.doctor import RULES, Report, examine, verdict

from tests.libzdnn import toolchain
from tests.libzdnn.toolchain import LIBRARY, ROOT, Prefix

pytestmark = pytest.mark.libzdnn
HERE = Path(__file__).parent
PROGRAMS = sorted([*(HERE / "programs").glob("*.c"), *(HERE / "foreign").glob("*.c")])
CONDUCT = ROOT / "tests/libzdnn/programs/sweep.c"
EXAMPLES = sorted((LIBRARY / "examples").glob("*.c"))
TELUMS = ("telum1", "telum2")
SECONDS = 60.0
FAULTS = {
    "card_batches": {
        "ignored-error": "zdnn_transform_ztensor: ZDNN_INVALID_STATE",
        "misuse": "zdnn_transform_ztensor at card_batches+0x",
    },
    "feed_forward": {"machine": "z16: exit code 1; operation 6, zdnn_gelu"},
    "ignored_warning": {
        "ignored-warning": "zdnn_exp: ZDNN_ELEMENT_RANGE_VIOLATION",
        "ignored-error": "zdnn_transform_origtensor: ZDNN_CONVERT_FAILURE",
    },
    "needs_telum2": {"machine": "z16: exit code 1; operation 1, zdnn_gelu"},
    "never_freed": {"leak": "2 ztensors allocated, 1 freed"},
    "no_storage": {
        "crash": "without NNPA: SIGSEGV",
        "ignored-error": "zdnn_allochelper_ztensor, calls 1, 2: it goes on",
    },
    "padding_read": {"unwritten": "it ends with exit code 1 and prints"},
    "shared_hidden": {"misuse": "input is used after it was freed"},
    "use_after_free": {"misuse": "zdnn_mul at use_after_free+0x"},
    "weights_in_loop": {"transformed-twice": "the same 512 bytes were transformed 3 times"},
}
"""By program what is found in it: by rule, a part of what is said. Those of `foreign` were written
without knowledge of the rules."""


@pytest.fixture(scope="module")
def prefix() -> Prefix:
    """Where the library is installed."""
    return toolchain.installed()


def _examined(
    source: Path, prefix: Prefix, folder: Path, *words: str, machines: tuple[str, ...] = TELUMS,
    timeout: float = SECONDS,
) -> Report:  # fmt: skip
    program = folder / source.stem
    toolchain.compiled(source, program, prefix, "-std=gnu11", "-D_GNU_SOURCE")
    return examine([str(program), *words], machines, timeout, quick=False, progress=_ignore)


def _ignore(_what: str, _done: int, _total: int) -> None:
    """Take no notice of progress."""


def _machines_of(example: str) -> tuple[str, ...]:
    """Return the machines that the documentation of the examples names."""
    page = (ROOT / "client/python/examples/README.md").read_text()
    (row,) = re.findall(rf"^\| `{example}\.py` \|.*$", page, re.MULTILINE)
    return TELUMS if "Telum I," in row else ("telum2",)


@pytest.mark.parametrize("source", PROGRAMS, ids=lambda path: path.stem)
def test_seeded_faults(source: Path, prefix: Prefix, tmp_path: Path) -> None:
    """A program's fault is found, at its place, and nothing else is."""
    report = _examined(source, prefix, tmp_path)
    expected = FAULTS[source.stem]
    assert {finding.rule for finding in report.findings} == set(expected), verdict(report)
    for rule, part in expected.items():
        texts = [finding.text for finding in report.findings if finding.rule == rule]
        assert any(part in text for text in texts), texts
        assert f"(`{rule}`)" in verdict(report)


@pytest.mark.parametrize("source", EXAMPLES, ids=lambda path: path.stem)
def test_examples(source: Path, prefix: Prefix, tmp_path: Path) -> None:
    """In an example, on the machines that it is documented for, nothing is found."""
    machines = _machines_of(source.stem)
    report = _examined(source, prefix, tmp_path, machines=machines)
    assert report.is_clean, verdict(report)
    assert report.trials.attempts
    assert {attempt.conduct for attempt in report.trials.attempts} == {"aborted"}
    (measure,) = (run for run in report.runs if run.title == "z17")
    assert (measure.ended, measure.errors) == ("exit code 0", {})


@pytest.mark.parametrize(
    ("mode", "rules"),
    [
        ("handle", set()),
        ("abort", set()),
        ("ignore", {"ignored-error", "ignored-warning"}),
        ("hang", {"hang"}),
    ],
)
def test_conduct(mode: str, rules: set[str], prefix: Prefix, tmp_path: Path) -> None:
    """A program that looks at statuses is clean; passing over them, and hanging, is found."""
    timeout = 2.0 if mode == "hang" else SECONDS
    report = _examined(CONDUCT, prefix, tmp_path, mode, timeout=timeout)
    assert {finding.rule for finding in report.findings} == rules, verdict(report)


def test_every_rule_is_shown() -> None:
    """Each rule has a program that breaks it; those that fail or hang are in `test_command`."""
    shown = {rule for faults in FAULTS.values() for rule in faults} | {"hang", "failure"}
    assert shown == {rule.name for rule in RULES}
