# SPDX-License-Identifier: Apache-2.0
"""Print what a probe of a hosted network finds in the Python client, for the other SDKs' tests.

    python hosted_probe.py TARGET MODEL.onnx

The probe is of sizes 1 and 2 on Telum I. The answer is one line of JSON: the runs.
"""

import json
import sys

from nnpa_client import connect


def main(target: str, model: str) -> None:
    """Probe the model and print the runs."""
    with connect(target) as session, session.load(model) as net:
        print(json.dumps({"runs": net.probe([1, 2], ["telum1"])}))


if __name__ == "__main__":
    main(*sys.argv[1:])
