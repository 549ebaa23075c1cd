# SPDX-License-Identifier: Apache-2.0
"""Random calls give the same bytes with and without the library's shortcuts.

The testee runs the same random vectors with every shortcut, without any, and without one at a time.
NNPA_PROPERTY_LISTS is how many calls (500), NNPA_PROPERTY_SEED the first vector's number.
"""

import json
import os
import subprocess
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
import pytest
from google.protobuf import json_format
from nnpa.zdnn.v1 import operation_pb2 as wire
from nnpa_client._server.shortcuts import NAMES

from tests.conformance.plain import words_of
from tests.libzdnn import toolchain
from tests.libzdnn.scenes import MAKERS, Shape
from tests.libzdnn.toolchain import Prefix
from tests.server.accelerator.random_operands import pages_of
from tests.strategies import EDGES
from tests.vector_runner import cell_bytes

COUNT = int(os.environ.get("NNPA_PROPERTY_LISTS", "500"))
SEED = int(os.environ.get("NNPA_PROPERTY_SEED", "1"))
CALLS = 10
"""Calls of a vector, about."""
MAX_PAGES = 24
PAGE = 4096
DENSE = (Shape((1, 1, 2, 3)), Shape((1, 2, 33, 5)), Shape((1, 1, 130, 130)))
"""Ztensors that are transformed; the arrays of the last travel in shared memory."""
FAMILIES = tuple(MAKERS)


@dataclass
class Author:
    """Writes a vector: random calls on tensors that they share, again and again."""

    random: Random
    shapes: list[Shape] = field(default_factory=list[Shape])
    memories: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    steps: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    def write(self, name: str) -> dict[str, Any]:
        """Return the vector."""
        while len(self.steps) < CALLS:
            calls = [self._transform()] if self.random.random() < 0.3 else [self._call()]
            self.steps += calls * self.random.choice((1, 2, 3))
        return {
            "name": name,
            "machine": self.random.choice(("telum1", "telum2")),
            "precheck": self.random.random() < 0.7,
            "tensors": {str(index): memory for index, memory in enumerate(self.memories, 1)},
            "steps": self.random.sample(self.steps, len(self.steps)),
        }

    def _call(self) -> dict[str, Any]:
        """Return a call that fits together, mostly."""
        name = self.random.choice(FAMILIES)
        while True:
            scene = MAKERS[name](self.random)
            if all(pages_of(shape) <= MAX_PAGES for shape in scene.operands.values()):
                break
        operands = {key: {"id": self._tensor(shape)} for key, shape in scene.operands.items()}
        message = wire.Operation.DESCRIPTOR.fields_by_name[name].message_type
        assert message is not None
        fields = message.fields_by_name
        arguments = {**operands, **scene.scalars}
        return {"operation": {name: {key: arguments[key] for key in fields if key in arguments}}}

    def _transform(self) -> dict[str, Any]:
        """Return a transform of an array, or back."""
        shape = self.random.choice(DENSE)
        ref = {"ztensor": {"id": self._tensor(shape)}}
        if self.random.random() < 0.5:
            return {"operation": {"transform_origtensor": ref}}
        few = np.array([self.random.uniform(-9, 9) for _ in range(5)], "<f4")
        data = words_of(np.resize(few, shape.dims).tobytes(), 4)
        return {"operation": {"transform_ztensor": ref}, "data": [data]}

    def _tensor(self, shape: Shape) -> int:
        """Return the id of a tensor of a shape, rarely of another one."""
        alike = [index for index, like in enumerate(self.shapes, 1) if like == shape]
        if alike and self.random.random() < 0.6:
            return self.random.choice(alike)
        if self.shapes and self.random.random() < 0.03:
            return self.random.randint(1, len(self.shapes))
        ztensor = shape.message()
        ztensor.is_transformed = shape not in DENSE or self.random.random() < 0.4
        few = np.array(self.random.choices(EDGES, k=2) + [0x3E00, 0x4000, 0xBE00] * 5, "<u2")
        sticks = np.resize(few, pages_of(shape) * PAGE // 2).tobytes()
        described = json_format.MessageToDict(
            ztensor, preserving_proto_field_name=True, use_integers_for_enums=True
        )
        memory = words_of(sticks, cell_bytes(ztensor.transformed_desc))
        self.shapes.append(shape)
        self.memories.append({**described, "memory": memory})
        return len(self.shapes)


def _answers(prefix: Prefix, server: str, plain: str, vectors: str) -> list[str]:
    """Run vectors through the testee without some shortcuts; return a line for each."""
    testee = str(prefix.path / "bin/zdnn-testee")
    completed = subprocess.run(
        [testee, "--emulated", "--file", "random"],
        input=vectors,
        env=toolchain.environment(ZDNN_SERVER=server, ZDNN_PLAIN=plain),
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    return completed.stdout.splitlines()


def _kind(step: dict[str, Any]) -> str:
    return str(step.get("status", step.get("error")))


@pytest.mark.shortcut
def test_the_librarys_shortcuts_change_no_byte(prefix: Prefix, server: str) -> None:
    """Statuses, sticks, arrays and program checks are the same for every choice of shortcuts."""
    seeds = range(SEED, SEED + -(-COUNT // CALLS))
    vectors = "".join(f"{json.dumps(Author(Random(seed)).write(str(seed)))}\n" for seed in seeds)
    expected = _answers(prefix, server, "1", vectors)
    assert len(expected) == len(seeds)
    for plain in ("0", *NAMES):
        answers = _answers(prefix, server, plain, vectors)
        for seed, answer, without in zip(seeds, answers, expected, strict=True):
            assert answer == without, f"ZDNN_PLAIN={plain} NNPA_PROPERTY_SEED={seed}"
    steps = [step for line in expected for step in json.loads(line)["steps"]]
    met = Counter(map(_kind, steps))
    print(f"seed {SEED}, {len(steps)} calls: {dict(met)}")
    assert met["0"] > len(steps) // 10
    assert len(met) > 2 or COUNT < 500
