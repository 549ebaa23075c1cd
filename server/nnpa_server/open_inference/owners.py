# SPDX-License-Identifier: Apache-2.0
"""Ownership of published models: only its owner may replace or unload a model.

The owner is the caller that published the model; the operator owns the models of `--models`. A
holder with `admin = true` may change every model, and so may everybody on a server without tokens.
"""

from nnpa.zdnn.v1 import status_pb2 as wire

from nnpa_server.errors import CallRefused
from nnpa_server.sessions.tokens import caller

OPERATOR = "the operator"  # no token is named so: names have no blanks


def may_change(owner: str) -> bool:
    """Return True if the caller may replace and unload models of an owner."""
    token = caller()
    return not token.name or token.is_admin or token.name == owner


def require_owner(name: str, owner: str | None) -> None:
    """Raise CallRefused if the caller may not change a model; None owns no model yet."""
    if owner is None or may_change(owner):
        return
    whose = "the operator's" if owner == OPERATOR else "another owner's"
    limit = "a model of this token, or the token an admin's"
    raise CallRefused(
        wire.ERROR_REASON_MODEL_NOT_OWNED,
        f"model {name} is {whose}, must be {limit}",
        field="model_name",
        value=name,
        limit=limit,
    )
