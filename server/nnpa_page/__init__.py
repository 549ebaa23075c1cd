# SPDX-License-Identifier: Apache-2.0
"""The page that shows machines, sticks, sessions, traces and models in a browser.

`nnpa-server --page` and `nnpa view` serve it, each with its own views. It uses the standard
library's HTTP: one page for few viewers needs no web framework.
"""

from nnpa_page.endpoint import TIMEOUT, Endpoint
from nnpa_page.fields import choice, number
from nnpa_page.guard import Guard, Refusal, Visitor
from nnpa_page.page import MAX_VIEWERS, Page, Query, View, open_page

__all__ = [
    "MAX_VIEWERS",
    "TIMEOUT",
    "Endpoint",
    "Guard",
    "Page",
    "Query",
    "Refusal",
    "View",
    "Visitor",
    "choice",
    "number",
    "open_page",
]
