# SPDX-License-Identifier: Apache-2.0
"""Models in files of the user or the operator, which client, jobs and server read alike."""
