# SPDX-License-Identifier: Apache-2.0
"""What `nnpa network validate` asks of its child, for tests and the bench."""

from pathlib import Path
from typing import Any


def evaluation(model: Path, data: Path, **changes: object) -> dict[str, Any]:
    """Return an evaluation of a model over a file of rows by one worker, less what changes."""
    return {
        "model": str(model), "machine": "telum2", "strict": False, "saturate": True,
        "offload_integer": False, "placement": "compiler", "shapes": {}, "data": str(data),
        "labels": None, "samples": None, "seed": 0, "images": "{}", "batch": None,
        "node_rows": 16, "int8": True, "max_drop": None, "html": False, "worst": None,
        "about": {"model": model.name}, "jobs": 1, "ray": None,
        "parts": None, **changes,
    }  # fmt: skip
