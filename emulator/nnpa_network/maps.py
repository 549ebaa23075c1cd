# SPDX-License-Identifier: Apache-2.0
"""Maps at the outputs of classifiers, which are replaced by the tensors behind them.

Source: ONNX operator ai.onnx.ml ZipMap, which scikit-learn's and CatBoost's converters write.
"""

from typing import Any

import onnx
from onnx import helper

from nnpa_network.containment import all_nodes

_ZIP_MAP = ("ai.onnx.ml", "ZipMap")
CUT = "a ZipMap that is cut: the output is the tensor of its operand, columns"
"""How the remark on a node begins that was one."""
_IDENTITY_OPSET, _SHOWN_LABELS = 13, 8


def cut_maps(proto: onnx.ModelProto) -> None:
    """Make each ZipMap whose map is an output, and nothing else, hand on its operand instead."""
    outputs = {info.name: info for info in proto.graph.output}
    read = {name for node in all_nodes(proto) for name in node.input}
    for node in proto.graph.node:
        ends = [outputs.get(name) for name in node.output if name not in read]
        if (node.domain, node.op_type) == _ZIP_MAP and len(ends) == 1 and ends[0] is not None:
            labels = [str(label) for field in node.attribute for label in _labels(field)]
            node.doc_string = f"{CUT} {', '.join(labels)}"
            node.op_type, node.domain = "Identity", ""
            del node.attribute[:]
            ends[0].ClearField("type")
            if all(entry.domain not in ("", "ai.onnx") for entry in proto.opset_import):
                proto.opset_import.append(helper.make_opsetid("", _IDENTITY_OPSET))


def _labels(attribute: onnx.AttributeProto) -> list[Any]:
    """Return the first labels of an attribute, and dots for the others."""
    labels = [*attribute.ints, *(label.decode("utf-8", "replace") for label in attribute.strings)]
    return [*labels[:_SHOWN_LABELS], *(["..."] if len(labels) > _SHOWN_LABELS else [])]
