# SPDX-License-Identifier: Apache-2.0
"""The Open Inference Protocol, version 2; beside its modules, its descriptor."""
