# SPDX-License-Identifier: Apache-2.0
"""Random graphs in which sequences and optionals go between nodes, branches among them."""

import random
from typing import Any

from onnx import NodeProto, TensorProto, helper

STEPS = (
    "construct", "split", "empty", "insert", "erase", "at", "at", "length", "join", "join",
    "optional", "held", "identity", "relu", "add", "branch",
)  # fmt: skip


class RandomSequences:
    """A graph over tensors `x` and `z` of rows of 3 and a condition `c`; `draw` adds nodes."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.nodes: list[NodeProto] = []
        self.tensors = ["x", "z"]
        self.sequences: dict[str, int] = {}
        """Names of sequences, each with its length."""
        self._count = 0

    def model(self) -> bytes:
        """Return a model of up to 16 steps, with up to three of its tensors as outputs."""
        for _ in range(self.rng.randint(4, 16)):
            self.draw(self.rng.choice(STEPS))
        self._tensor("Relu", self.tensors[-1])
        ends = dict.fromkeys([self.tensors[-1], *self.rng.choices(self.tensors[2:], k=2)])
        tensor = helper.make_tensor_value_info
        row: list[str | int | None] = ["N", 3]
        inputs = [tensor(name, TensorProto.FLOAT, row) for name in "xz"]
        inputs.append(tensor("c", TensorProto.BOOL, []))
        outputs = [tensor(name, TensorProto.FLOAT, row) for name in ends]
        graph = helper.make_graph(self.nodes, "random", inputs, outputs)
        opsets = [helper.make_opsetid("", 17)]
        proto = helper.make_model(graph, opset_imports=opsets, ir_version=8)
        return bytes(proto.SerializeToString())

    def draw(self, step: str) -> None:
        """Add the nodes of a step, none where it needs a sequence and there is none."""
        first, second = self.rng.choices(self.tensors, k=2)
        match step:
            case "construct":
                self._sequence("SequenceConstruct", 2, first, second)
            case "split":
                rows = self._add("Concat", first, second, axis=0)
                pair = self._add("Unsqueeze", rows, self._constant([0]))
                parts = self._add("Reshape", pair, self._constant([2, -1, 3]))
                self._sequence("SplitToSequence", 2, parts, axis=0, keepdims=0)
            case "empty":
                empty = self._add("SequenceEmpty", dtype=TensorProto.FLOAT)
                self._sequence("SequenceInsert", 1, empty, first)
            case "relu":
                self._tensor("Relu", first)
            case "add":
                self._tensor("Add", first, second)
            case "held":
                self._tensor("OptionalGetElement", self._add("Optional", first))
            case _:
                if self.sequences:
                    self._use(step, *self.rng.choice([*self.sequences.items()]), first)

    def _use(self, step: str, sequence: str, length: int, tensor: str) -> None:
        place = self._add("Constant", value_int=self.rng.randrange(length))
        match step:
            case "insert":
                self._sequence("SequenceInsert", length + 1, sequence, tensor, place)
            case "erase" if length > 1:
                self._sequence("SequenceErase", length - 1, sequence, place)
            case "at":
                self._tensor("SequenceAt", sequence, place)
            case "length":
                count = self._add("SequenceLength", sequence)
                self._tensor("Mul", tensor, self._add("Cast", count, to=TensorProto.FLOAT))
            case "join":
                stack = self._add("ConcatFromSequence", sequence, axis=0, new_axis=1)
                self._tensor("ReduceMean", stack, axes=[0], keepdims=0)
            case "optional":
                held = self._add("Optional", sequence)
                self._sequence("OptionalGetElement", length, held)
            case "identity":
                self._sequence("Identity", length, sequence)
            case _:
                if step == "branch":
                    self._branch(sequence, place, tensor)

    def _branch(self, sequence: str, place: str, tensor: str) -> None:
        ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "ab"]
        element = helper.make_node("SequenceAt", [sequence, place], ["a"])
        negative = helper.make_node("Neg", [tensor], ["b"])
        branches = {
            "then_branch": helper.make_graph([element], "then", [], ends[:1]),
            "else_branch": helper.make_graph([negative], "else", [], ends[1:]),
        }
        self._tensor("If", "c", **branches)

    def _add(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        self._count += 1
        name = f"v{self._count}"
        self.nodes.append(helper.make_node(op_type, list(inputs), [name], **attributes))
        return name

    def _constant(self, numbers: list[int]) -> str:
        return self._add("Constant", value_ints=numbers)

    def _tensor(self, op_type: str, *inputs: str, **attributes: Any) -> None:
        self.tensors.append(self._add(op_type, *inputs, **attributes))

    def _sequence(self, op_type: str, length: int, *inputs: str, **attributes: Any) -> None:
        self.sequences[self._add(op_type, *inputs, **attributes)] = length


def random_model(seed: int) -> bytes:
    """Return the model of a seed."""
    return RandomSequences(seed).model()
