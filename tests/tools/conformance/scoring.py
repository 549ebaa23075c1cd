# SPDX-License-Identifier: Apache-2.0
"""`nnpa conformance score` over the vectors of a folder, and files as real machines send them."""

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result
from nnpa_tools.cli import main

HEADING = {"results": 1, "machine": "z17", "library": "1.2.0", "date": "2026-11-26", "note": "ours"}
Json = dict[str, Any]


def sent(path: Path, answers: list[str], **heading: Any) -> Path:
    """Write a file as a real machine's."""
    lines = [json.dumps({**HEADING, **heading}), *answers, json.dumps({"end": len(answers)})]
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def score(vectors: Path, *words: Path | str) -> Result:
    """Score vectors of a folder."""
    arguments = ["conformance", "score", "--suite", "vectors", "--vectors", str(vectors)]
    return CliRunner().invoke(main, [*arguments, "--json", *map(str, words)])


def data(ended: Result) -> Json:
    """Return a score without what depends on the clock."""
    scored: Json = json.loads(ended.stdout)
    for suite in scored["suites"]:
        del suite["seconds"]
    return scored
