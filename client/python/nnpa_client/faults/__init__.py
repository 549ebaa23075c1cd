# SPDX-License-Identifier: Apache-2.0
"""Fault injection: how a program behaves when the accelerator fails.

    with connect(allow_faults=True) as session:
        with session.faults(zdnn.conv2d, status=zdnn.ZDNN_EXCEEDS_MDIS, nth=3) as faults:
            ...                                    # the third zdnn.conv2d raises ZdnnError
        print(faults.injected)

Rules are `FaultRule` messages of the wire contract, nnpa/zdnn/v1/fault.proto, which defines what
they mean. A server accepts them only if it was started with --allow-faults.
"""

from nnpa.zdnn.v1.fault_pb2 import FaultDelay, FaultMove, FaultRule, InjectedFault

from nnpa_client.faults.injection import Faults
from nnpa_client.faults.rules import Rule, make_rule, read_rules, schema

__all__ = [
    "FaultDelay",
    "FaultMove",
    "FaultRule",
    "Faults",
    "InjectedFault",
    "Rule",
    "make_rule",
    "read_rules",
    "schema",
]
