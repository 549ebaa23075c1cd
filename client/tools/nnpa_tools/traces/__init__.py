# SPDX-License-Identifier: Apache-2.0
"""Work on traces: differences, replays, values, and tables."""
