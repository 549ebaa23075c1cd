# SPDX-License-Identifier: Apache-2.0
"""The zDNN API of the wire, by version."""
