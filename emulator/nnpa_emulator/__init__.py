# SPDX-License-Identifier: Apache-2.0
"""The zDNN and NNPA emulator."""
