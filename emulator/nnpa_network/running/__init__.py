# SPDX-License-Identifier: Apache-2.0
"""Programs on a machine: the accelerator's steps by the emulator, the host's by ONNX Runtime."""
