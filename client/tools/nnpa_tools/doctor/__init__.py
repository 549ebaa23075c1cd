# SPDX-License-Identifier: Apache-2.0
"""The doctor: it runs a program on all machines and under faults, and reports its faults.

It combines fault rules and their sweep, the sanitizer, traces and estimates. `engine` applies its
rules to all runs and trials, and the rules of `nnpa trace lint` to a trace. `nnpa_client.doctor`
has its public names.
"""
