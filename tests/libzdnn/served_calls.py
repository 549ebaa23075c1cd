# SPDX-License-Identifier: Apache-2.0
"""The calls that a server has served, by its log."""

import re
from collections import Counter

from tests.server.process import ServerProcess


def served_calls(server: ServerProcess) -> Counter[tuple[str, str]]:
    """End a server; return how many calls of each method had lines of each status, "*" for any.

    A stream is one call with one id, however many lines it has.
    """
    server.stop()
    lines = re.findall(r"method=(\w+) .*?status=(\w+) .*?id=(\w+)", server.log_text())
    calls = {(method, name, call) for method, status, call in lines for name in (status, "*")}
    return Counter((method, status) for method, status, _ in calls)
