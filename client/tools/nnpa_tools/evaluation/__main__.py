# SPDX-License-Identifier: Apache-2.0
"""`python -m nnpa_tools.evaluation`: a child that does a job, and ends with its parent.

Standard input has the job, a line of JSON, {"evaluation": ..} or {"pieces": ..}, and stays open
while somebody waits. Standard output has lines of JSON: {"done": count, "of": count} on the way,
then one of

    {"json": .., "text": .., "html": .., "incomplete": ..}    the report of an evaluation
    {"pieces": count, "lost": {number: why}}                  answers to other work are in files
    {"failed": {"code": .., "message": .., "reason": ..}}     the model cannot be hosted, or run,
                                                              or what a server said
    {"invalid": why}                                          the job, or its data, is wrong
"""

import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import TextIO

from nnpa_server.config import kernel_cache, leave_out_telemetry
from nnpa_wire.installation import pip_install

Progress = Callable[[int, int], None]
_ONNX = ("onnx", "onnxruntime")


def main() -> None:
    """Do the job of standard input."""
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: the parent ends this process
    answers = _take_over_output()
    job = sys.stdin.readline()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    kernel_cache()
    leave_out_telemetry()
    try:
        answer = _answer(job, answers)
    except ModuleNotFoundError as error:
        if error.name not in _ONNX:
            raise
        answer = {"invalid": f"{error.name} is not installed: {pip_install('server', 'onnx')}"}
    print(json.dumps(answer), file=answers, flush=True)


def _answer(job: str, answers: TextIO) -> dict[str, object]:
    """Return the last line."""
    from nnpa_client.errors import TransportError
    from nnpa_network.program import ModelRefused

    from nnpa_tools.evaluation.validation import NotHosted

    def progress(done: int, of: int) -> None:
        print(json.dumps({"done": done, "of": of}), file=answers, flush=True)

    try:
        content = json.loads(job)
        if "evaluation" in content:
            return _evaluated(content["evaluation"], progress)
        return _worked(content["pieces"], progress)
    except NotHosted as refused:
        return _refused(f"the model cannot be hosted: {refused}")
    except ModelRefused as refused:
        return _refused(str(refused)) if refused.node else {"invalid": str(refused)}
    except TransportError as error:
        return _failed(error.code, error.message, error.reason)
    except ValueError as error:
        return {"invalid": str(error)}


def _evaluated(content: object, progress: Progress) -> dict[str, object]:
    """Return the report of an evaluation."""
    from nnpa_network.reporting.accuracy import as_json
    from nnpa_network.reporting.accuracy_page import as_html
    from nnpa_network.reporting.accuracy_text import as_text
    from nnpa_network.reporting.records import decode

    from nnpa_tools.evaluation.validation import Request, validate

    request = decode(Request, content)
    report = validate(request, progress)
    return {
        "json": as_json(report),
        "text": as_text(report),
        "html": as_html(report) if request.html else "",
        "incomplete": "; ".join(map(str, report.unmeasured)),
    }


def _worked(content: object, progress: Progress) -> dict[str, object]:
    """Return which pieces of work are lost."""
    from nnpa_network.reporting.records import decode

    from nnpa_tools.evaluation.independent import Request, work_on_cluster

    return work_on_cluster(decode(Request, content), progress)


def _refused(why: str) -> dict[str, object]:
    return _failed("INVALID_ARGUMENT", why, "MODEL_INVALID")


def _failed(code: str, message: str, reason: str) -> dict[str, object]:
    return {"failed": {"code": code, "message": message, "reason": reason}}


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
