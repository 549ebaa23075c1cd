# SPDX-License-Identifier: Apache-2.0
"""Guards around the plain path of a session: they change no answer, but refuse excess."""

import numpy as np

from nnpa_server.accelerator.decode import Step
from nnpa_server.accelerator.seams import Answer, CallPath
from nnpa_server.rpc.budget import account_of_call
from nnpa_server.rpc.codec import content_sizes
from nnpa_server.sessions.store import Session


def count_answers(path: CallPath, session: Session) -> None:
    """Reserve room for the contents of a step's answer before they are computed."""
    plain, most = path.run_with_contents, session.limits.max_inline

    def run(session: Session, step: Step) -> Answer:
        count = int(step.spec.name == "transform_origtensor")
        count += sum(name in step.spec.filled for name in step.inline)
        account = account_of_call()
        if account is None or not count:
            return plain(session, step)
        account.expect_more(count * most)
        answer = plain(session, step)
        value = answer.outcome.value
        array = value if isinstance(value, np.ndarray) else None
        size = sum(content_sizes(answer.result, array, answer.sticks))
        account.expect_more(size - count * most)
        return answer

    path.run_with_contents = run
