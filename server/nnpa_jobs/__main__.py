# SPDX-License-Identifier: Apache-2.0
"""`python -m nnpa_jobs`: a child of the client that does a job, and ends with its parent.

Standard input has the job, a line of JSON, and stays open while somebody waits. Standard output has
lines of JSON: {"done": rows, "rows": rows} on the way, then one of

    {"json": .., "text": .., "html": .., "incomplete": ..}    the report
    {"refused": why}                                          the model cannot be hosted, or run
    {"invalid": why}                                          the job, or its data, is wrong
"""

import json
import os
import signal
import sys
import threading
from typing import TextIO

from nnpa_server.config import kernel_cache, leave_out_telemetry


def main() -> None:
    """Do the job of standard input."""
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: the parent ends this process
    answers = _take_over_output()
    job = sys.stdin.readline()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    kernel_cache()
    leave_out_telemetry()
    print(json.dumps(_answer(job, answers)), file=answers, flush=True)


def _answer(job: str, answers: TextIO) -> dict[str, object]:
    """Return the last line."""
    from nnpa_network.program import ModelRefused
    from nnpa_network.reporting.accuracy import as_json
    from nnpa_network.reporting.accuracy_page import as_html
    from nnpa_network.reporting.accuracy_text import as_text
    from nnpa_network.reporting.records import decode

    from nnpa_jobs.validation import NotHosted, Request, validate

    def progress(done: int, rows: int) -> None:
        print(json.dumps({"done": done, "rows": rows}), file=answers, flush=True)

    try:
        request = decode(Request, json.loads(job))
        report = validate(request, progress)
    except NotHosted as refused:
        return {"refused": f"the model cannot be hosted: {refused}"}
    except ModelRefused as refused:
        if refused.node:
            return {"refused": str(refused)}
        return {"invalid": str(refused)}
    except ValueError as error:
        return {"invalid": str(error)}
    return {
        "json": as_json(report),
        "text": as_text(report),
        "html": as_html(report) if request.html else "",
        "incomplete": "; ".join(map(str, report.unmeasured)),
    }


def _take_over_output() -> TextIO:
    """Return standard output, and have whatever else writes to it write to standard error."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return answers


def _end_with_parent() -> None:
    """Wait until the parent closes standard input, or ends."""
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)


def _end(number: int, _frame: object) -> None:
    """End by way of all `with` blocks, which end workers."""
    sys.exit(128 + number)


if __name__ == "__main__":
    main()
