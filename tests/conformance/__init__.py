# SPDX-License-Identifier: Apache-2.0
"""One suite for every SDK: the shared vectors through the SDK's testee."""
