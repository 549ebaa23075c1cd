# SPDX-License-Identifier: Apache-2.0
"""A notebook as a page: it is executed, and what its cells show stands below them."""

from pathlib import Path

from nbconvert.exporters import MarkdownExporter
from nbconvert.preprocessors import ExecutePreprocessor

SECONDS = 600  # that a cell may take, or the start of its kernel on a busy machine


def executed(path: Path) -> str:
    """Return a notebook as Markdown with its pictures inside.

    Raises CellExecutionError, which names the cell, where one raises an exception.
    """
    exporter = MarkdownExporter()
    executing = ExecutePreprocessor(timeout=SECONDS, startup_timeout=SECONDS)
    exporter.register_preprocessor(executing, enabled=True)
    place = {"metadata": {"path": str(path.parent)}}
    markdown: str = exporter.from_filename(str(path), resources=place)[0]
    return markdown
