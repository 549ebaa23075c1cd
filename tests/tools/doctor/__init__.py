# SPDX-License-Identifier: Apache-2.0
"""`nnpa doctor`: programs with seeded faults, examples without, and programs that cannot be run."""
