# SPDX-License-Identifier: Apache-2.0
"""Who may call: bearer tokens, kept as hashes, with what each may use.

The file is TOML, one table per holder:

    [tokens.alice]
    sha256 = "64 hex digits, of the token"
    machines = ["telum1", "telum2"]        # all, where it is left out
    expires = 2030-01-01T00:00:00Z         # never
    admin = true                           # may replace and unload everybody's models; false
    max_sessions = 4                       # as much as the server's flags of these names allow
    max_session_bytes = "1GiB"
    max_session_tensors = 1000
    max_session_cache = "64MiB"
    max_models = 4                         # published models of this holder, versions counted
    max_state_bytes = "1GiB"

Source of the header: RFC 6750, "The OAuth 2.0 Authorization Framework: Bearer Token Usage", 2.1.
"""

import hashlib
import hmac
import logging
import math
import re
import stat
import time
import tomllib
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from nnpa.zdnn.v1 import status_pb2 as wire
from nnpa_emulator import find_machine

from nnpa_server.config import Limits, parse_size
from nnpa_server.errors import CallRefused, beyond

_log = logging.getLogger("nnpa.server")
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_HEADER, _SCHEME = "authorization", "bearer "
_COUNTS = ("max_sessions", "max_session_tensors", "max_models")
_SIZES = ("max_session_bytes", "max_session_cache", "max_state_bytes")
_OF_MODELS = ("max_models", "max_state_bytes")
_OWNER_DIGITS = 16
_MAX_SHOWN = 80  # characters of a value in an error


class TokensInvalid(ValueError):
    """The file of tokens cannot be used; the text names the entry, the value and the limit."""


@dataclass(frozen=True, slots=True)
class Token:
    """The holder of a token.

    `digest` is the token's SHA-256, `machines` the allowed machines (empty: all), `expires` the end
    in POSIX seconds. `quotas` has lower quotas than the server's, by the names of its flags. An
    admin may replace and unload models of other holders.
    """

    name: str
    digest: bytes
    machines: frozenset[str]
    expires: float
    quotas: Mapping[str, int]
    is_admin: bool = False

    @property
    def object_owner(self) -> str:
        """The owner in names of objects whose client knows the token but not its name."""
        return hashlib.sha256(self.digest).hexdigest()[:_OWNER_DIGITS]

    def limits(self, most: Limits) -> Limits:
        """Return the limits of a session of this holder, at most the server's limits `most`."""
        lower = {
            key: min(value, getattr(most, key))
            for key, value in self.quotas.items()
            if key not in _OF_MODELS
        }
        return replace(most, **lower)


_ANYBODY = Token("", b"", frozenset(), math.inf, {})
_caller: ContextVar[Token] = ContextVar("caller", default=_ANYBODY)

caller = _caller.get
"""Return the holder whose call this thread runs; it has no name if the server has no tokens."""


def set_caller(token: Token | None) -> None:
    """Set the holder whose call this thread runs."""
    _caller.set(token or _ANYBODY)


def require_machine(machine: str) -> None:
    """Refuse a machine, by the name of its model, that the caller's token does not allow."""
    token = _caller.get()
    if not token.machines or machine in token.machines:
        return
    machines = ", ".join(sorted(token.machines))
    text = f"machine is {machine}, this token is for {machines}"
    raise beyond(wire.ERROR_REASON_MACHINE_NOT_ALLOWED, text, "machine", machine, machines)


class Tokens:
    """The tokens of a file. If `reload` finds an invalid file, it changes nothing."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._tokens = read(path)

    def __len__(self) -> int:
        return len(self._tokens)

    def reload(self) -> None:
        """Read the file again; raise `TokensInvalid` and keep the old tokens if it is invalid."""
        self._tokens = read(self._path)

    def find(self, metadata: Iterable[tuple[str, str | bytes]]) -> Token:
        """Return the holder of the token in a call's metadata; raise CallRefused without one.

        Every hash is compared, each in constant time.
        """
        digest = hashlib.sha256(_presented(metadata)).digest()
        holder: Token | None = None
        for token in self._tokens:
            if hmac.compare_digest(token.digest, digest):
                holder = token
        if holder is None:
            raise _refused("authorization must be 'Bearer TOKEN' with a token of this server")
        _require_time(holder)
        return holder

    def require_current(self, token: Token) -> None:
        """Raise CallRefused if a token has expired or was removed from the file."""
        if not any(current.digest == token.digest for current in self._tokens):
            raise _refused("the token was withdrawn")
        _require_time(token)


def _presented(metadata: Iterable[tuple[str, str | bytes]]) -> bytes:
    values = [value for key, value in metadata if key == _HEADER and isinstance(value, str)]
    if len(values) != 1 or values[0][: len(_SCHEME)].lower() != _SCHEME:
        raise _refused("the call has no token: send it as metadata, authorization: Bearer TOKEN")
    return values[0][len(_SCHEME) :].strip().encode()


def _require_time(token: Token) -> None:
    if time.time() >= token.expires:
        raise _refused("the token has expired")


def _refused(text: str) -> CallRefused:
    return CallRefused(wire.ERROR_REASON_TOKEN_INVALID, text)


def read(path: Path) -> tuple[Token, ...]:
    """Read a file of tokens; raise `TokensInvalid`."""
    try:
        entries = tomllib.loads(path.read_text())
    except (OSError, ValueError) as error:  # of which TOML's and UTF-8's errors are kinds
        raise TokensInvalid(f"{path}: {error}") from error
    named = entries.pop("tokens", None)
    if entries or not isinstance(named, dict) or not named:
        raise TokensInvalid(f"{path}: must have tables [tokens.NAME] and nothing else")
    tokens = tuple(_token(name, entry) for name, entry in named.items())
    if len({token.digest for token in tokens}) < len(tokens):
        raise TokensInvalid(f"{path}: sha256 is the same in two entries, must be one's own")
    _warn_of_writers(path)
    return tokens


def _warn_of_writers(path: Path) -> None:
    """Warn if every user of this machine may change or replace the file."""
    file = path.resolve()
    if file.stat().st_mode & stat.S_IWOTH:
        _log.warning("%s: all users of this machine may write it: chmod o-w %s", path, path)
    folder, mode = file.parent, file.parent.stat().st_mode
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        text = "%s: all users of this machine may replace it: chmod o-w %s"
        _log.warning(text, path, folder)


def _token(name: str, entry: object) -> Token:
    if _NAME.fullmatch(name) is None or not isinstance(entry, dict):
        raise _wrong(f"name {name!r}", "1 to 64 of A-Z a-z 0-9 . _ -, a table")
    left: dict[str, object] = {str(key): value for key, value in entry.items()}
    digest = left.pop("sha256", "")
    if not isinstance(digest, str) or _SHA256.fullmatch(digest) is None:
        raise _wrong(f"{name}.sha256 is {digest!r}", "the 64 hex digits of a SHA-256")
    machines = _machines(name, left.pop("machines", None))
    expires = _expires(name, left.pop("expires", None))
    is_admin = left.pop("admin", False)
    if not isinstance(is_admin, bool):
        raise _wrong(f"{name}.admin is {is_admin!r}", "true or false")
    quotas = {key: _quota(f"{name}.{key}", key, left.pop(key))
              for key in (*_COUNTS, *_SIZES) if key in left}  # fmt: skip
    if left:
        keys = f"sha256, machines, expires, admin, {', '.join((*_COUNTS, *_SIZES))}"
        raise _wrong(f"{name}.{min(left)}", f"one of {keys}")
    return Token(name, bytes.fromhex(digest), machines, expires, quotas, is_admin)


def _machines(holder: str, names: object) -> frozenset[str]:
    if names is None:
        return frozenset()
    if not isinstance(names, list) or not names:
        raise _wrong(f"{holder}.machines is {names!r}", "a list of machines")
    machines: set[str] = set()
    for name in names:
        try:
            machines.add(find_machine(str(name)).name)
        except KeyError:
            raise _wrong(f"{holder}.machines has {name!r}", "a machine of `nnpa info`") from None
    return frozenset(machines)


def _expires(name: str, when: object) -> float:
    if when is None:
        return math.inf
    if not isinstance(when, datetime) or when.tzinfo is None:
        raise _wrong(f"{name}.expires is {when}", "date, time and zone, as 2030-01-01T00:00:00Z")
    return when.timestamp()


def _quota(path: str, key: str, value: object) -> int:
    if key in _SIZES and isinstance(value, str):
        try:
            return parse_size(value)
        except ValueError as error:
            raise TokensInvalid(f"tokens.{path}: {error}") from None
    least = 0 if key == "max_session_cache" else 1
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise _wrong(f"{path} is {value!r}", f"a whole number from {least}")
    return value


def _wrong(what: str, limit: str) -> TokensInvalid:
    shown = what if len(what) <= _MAX_SHOWN else f"{what[:_MAX_SHOWN]}..."
    return TokensInvalid(f"tokens.{shown}, must be {limit}")
