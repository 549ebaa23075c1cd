# SPDX-License-Identifier: Apache-2.0
"""The form of the tables that commands print."""

from collections.abc import Collection, Iterable

from rich import box
from rich.table import Column, Table


def simple_table(
    headings: Iterable[str],
    right: Collection[str] = (),
    title: str | None = None,
    wrapped: str | None = None,
) -> Table:
    """Return a table without rows; the columns in `right` hold numbers.

    If `wrapped` names a column, all other columns keep their texts on one line.
    """
    columns = (
        Column(
            heading,
            justify="right" if heading in right else "left",
            no_wrap=wrapped not in (None, heading),
        )
        for heading in headings
    )
    return Table(*columns, box=box.SIMPLE, title=title, title_justify="left")
