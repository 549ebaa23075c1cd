# SPDX-License-Identifier: Apache-2.0
"""Who may replace and unload a published model: its owner, who published it.

The operator owns the models of `--models`. A server without tokens knows one caller, who may
everything; where there are tokens, holders with `admin = true` may.
"""

from nnpa.zdnn.v1 import status_pb2 as wire

from nnpa_server.errors import CallRefused
from nnpa_server.sessions.tokens import caller

OPERATOR = "the operator"  # no token is named so: names have no blanks


def may_change(owner: str) -> bool:
    """Return whether the caller may replace and unload models of an owner."""
    token = caller()
    return not token.name or token.is_admin or token.name == owner


def require_owner(name: str, owner: str | None) -> None:
    """Refuse the caller a change of somebody else's model; None owns what is not there."""
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
