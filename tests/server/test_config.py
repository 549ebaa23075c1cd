# SPDX-License-Identifier: Apache-2.0
"""Flags: sizes, times, addresses, and what counts as this machine."""

import os
import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nnpa_server.config import (
    SHORTCUTS,
    Config,
    Limits,
    Tls,
    config_from_json,
    config_to_json,
    is_local,
    parse_listen,
    parse_plain,
    parse_size,
    parse_time,
)

CHANGES: dict[type, Callable[[Any], Any]] = {
    bool: lambda value: not value,
    int: lambda value: value + 1,
    float: lambda value: value + 0.1,
    str: lambda value: value + "é",
    tuple: lambda value: (*value, "unix:/é"),
    frozenset: lambda _value: frozenset(SHORTCUTS),
    type(None): lambda _value: Path(os.fsdecode(b"/caf\xe9")),
    Limits: lambda _value: Limits(max_sessions=3, idle_timeout=0.1),
}
UNITS = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


@given(st.integers(0, 10**6), st.sampled_from(sorted(UNITS)))
def test_sizes(number: int, unit: str) -> None:
    """A size is a number times its unit, in any case of letters."""
    assert parse_size(f"{number}{unit}") == number * UNITS[unit]
    assert parse_size(f"{number} {unit.lower()}") == number * UNITS[unit]


@pytest.mark.parametrize(
    ("text", "seconds"), [("15m", 900), ("1.5s", 1.5), ("200ms", 0.2), ("2h", 7200), ("3", 3)]
)
def test_times(text: str, seconds: float) -> None:
    """A time is a number times its unit, seconds without one."""
    assert parse_time(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "x", "-1", "1 parsec", "1.2.3", "MiB", "8 GB 2"])
def test_bad_sizes_and_times(text: str) -> None:
    """Text that is no size or time is refused with the expected form."""
    for parse in (parse_size, parse_time):
        with pytest.raises(ValueError, match="must be a number"):
            parse(text)


@pytest.mark.parametrize(
    ("text", "address", "local"),
    [
        ("127.0.0.1:0", "127.0.0.1:0", True),
        (":50051", "127.0.0.1:50051", True),
        ("127.8.9.1:1", "127.8.9.1:1", True),
        ("localhost:1", "localhost:1", True),
        ("[::1]:5", "[::1]:5", True),
        ("unix:/run/nnpa.sock", "unix:/run/nnpa.sock", True),
        ("unix:///run/nnpa.sock", "unix:/run/nnpa.sock", True),
        ("0.0.0.0:1", "0.0.0.0:1", False),
        ("[::]:1", "[::]:1", False),
        ("10.1.2.3:1", "10.1.2.3:1", False),
        ("telum.example:1", "telum.example:1", False),
        ("localhost.example:1", "localhost.example:1", False),
    ],
)
def test_addresses(text: str, address: str, local: bool) -> None:
    """Addresses are normalised, and only loopback and sockets are this machine's own."""
    assert parse_listen(text) == address
    assert is_local(address) is local


@pytest.mark.parametrize("text", ["", "host", "host:", "host:x", "1.2.3.4:65536", "unix:relative"])
def test_bad_addresses(text: str) -> None:
    """An address without a port, or with an impossible one, is refused by its text."""
    with pytest.raises(ValueError, match=re.escape(f"address is {text!r}, ")):
        parse_listen(text)


def test_shares_of_threads() -> None:
    """Streams and a session's calls never take all threads; a caller alone has its workers."""
    for workers in (4, 5, 64):
        config = Config(workers=workers)
        assert 1 <= config.max_streams <= workers / 2
        assert 1 <= config.max_session_calls <= workers / 4
        assert config.max_conversations / 2 == min(4 * workers, config.limits.max_sessions)
        assert config.max_threads / 2 >= workers


def test_four_inline_tensors_fit_a_message() -> None:
    """The inline limit follows from the message limit."""
    assert 4 * Limits(max_message=1 << 20).max_inline == 1 << 20
    assert Limits().max_inline == 16 << 20


def test_plain_takes_shortcuts_away() -> None:
    """`--plain` takes all shortcuts away, a list those that it names, nothing none."""
    assert not Config(plain=parse_plain("all")).shortcuts
    left = Config(plain=parse_plain("warm-up,request-cache")).shortcuts
    assert left == set(SHORTCUTS) - {"warm-up", "request-cache"}
    assert Config(plain=parse_plain("")).shortcuts == set(SHORTCUTS)


def test_plain_refuses_what_is_no_shortcut() -> None:
    """A name that is no shortcut is refused with the list of those that are."""
    with pytest.raises(ValueError, match="'magic', must be one of request-cache, "):
        parse_plain("warm-up,magic")


def test_a_configuration_comes_back_equal() -> None:
    """Another process reads a configuration back unchanged, whatever the fields' values."""
    default = Config()
    values = {field.name: getattr(default, field.name) for field in fields(Config)}
    del values["tls"]
    changed = Config(**{name: CHANGES[type(value)](value) for name, value in values.items()})
    assert all(getattr(changed, name) != value for name, value in values.items())
    for config in (default, changed):
        line = config_to_json(config)
        assert "\n" not in line
        assert config_from_json(line) == config


def test_a_key_stays_in_its_process() -> None:
    """A configuration with TLS is not written for another process."""
    with pytest.raises(ValueError, match="tls: is given"):
        config_to_json(Config(tls=Tls(b"certificate", b"key")))
