# SPDX-License-Identifier: Apache-2.0
"""The doctor: it runs a program on all machines and under faults, and says what is wrong with it.

It composes what is there: fault rules and their sweep, the sanitizer, traces, estimates. `engine`
applies its rules to all runs and trials, and the rules of `nnpa trace lint` to a trace. Its public
names are those of `nnpa_client.doctor`.
"""
