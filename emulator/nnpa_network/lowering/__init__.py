# SPDX-License-Identifier: Apache-2.0
"""An ONNX graph into a program: every node folded, placed and lowered."""
