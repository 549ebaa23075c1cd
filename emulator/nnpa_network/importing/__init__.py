# SPDX-License-Identifier: Apache-2.0
"""ONNX files and programs in: parsed, checked, and kept as plans."""
