# SPDX-License-Identifier: Apache-2.0
"""What makes calls quicker and can be taken away: each wraps the plain transport."""
