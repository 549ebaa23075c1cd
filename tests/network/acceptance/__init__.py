# SPDX-License-Identifier: Apache-2.0
"""Models that packages ship and that exporters write, hosted and compared with ONNX Runtime."""
