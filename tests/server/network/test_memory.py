# SPDX-License-Identifier: Apache-2.0
"""The memory of a server and its workers while all sessions use up their quotas."""

import threading
import time
from pathlib import Path

import grpc
import numpy as np
import pytest
from nnpa_server.config import MIB
from nnpa_server.sandbox import confinement
from onnx import ModelProto, TensorProto, helper, numpy_helper

from tests.hostile.gauges import MemorySampler, memory, wait_until_quiet
from tests.server.network.service_client import Client
from tests.server.process import serving

pytestmark = [
    pytest.mark.skipif(not confinement.is_linux(), reason="workers are Linux processes"),
    pytest.mark.heavy,
]
SESSIONS, QUOTA, SPARE = 4, 256 * MIB, 512 * MIB
ELEMENTS = 1 << 19  # 2 MiB of FP32


def growing() -> ModelProto:
    """Return a Loop that keeps every one of its 10,000 values, of 2 MiB each."""
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["on"], ["going"]),
            helper.make_node("Sin", ["v"], ["w"]),
            helper.make_node("Identity", ["w"], ["kept"]),
        ],
        "body",
        [info("i", TensorProto.INT64, []), info("on", TensorProto.BOOL, []),
         info("v", TensorProto.FLOAT, [ELEMENTS])],
        [info("going", TensorProto.BOOL, []), info("w", TensorProto.FLOAT, [ELEMENTS]),
         info("kept", TensorProto.FLOAT, [ELEMENTS])],
    )  # fmt: skip
    graph = helper.make_graph(
        [
            helper.make_node("Loop", ["trips", "", "x"], ["last", "all"], "loop", body=body),
            helper.make_node("ReduceSum", ["all"], ["y"], keepdims=0),
        ],
        "growing",
        [info("x", TensorProto.FLOAT, [ELEMENTS])],
        [info("y", TensorProto.FLOAT, [])],
        [numpy_helper.from_array(np.array(10_000, np.int64), "trips")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def test_sessions_with_workers_stay_within_their_quotas(tmp_path: Path) -> None:
    """Four sessions whose host nodes grow until they fail take their quotas and 512 MiB."""
    flags = f"--max-sessions {SESSIONS} --max-session-bytes {QUOTA}".split()
    address = f"unix:{tmp_path}/nnpa.sock"
    with serving(tmp_path, "--listen", address, *flags) as server:
        wait_until_quiet(server.process.pid, 90)
        idle, failures = memory(server.process.pid), list[grpc.StatusCode]()
        with grpc.insecure_channel(server.address) as channel:
            clients = [Client(channel) for _ in range(SESSIONS)]
            handles = [client.ready(growing()) for client in clients]

            def grow(client: Client, handle: str) -> None:
                try:
                    client.infer(handle, x=np.ones(ELEMENTS, np.float32))
                except grpc.RpcError as error:
                    failures.append(error.code())

            pairs = zip(clients, handles, strict=True)
            threads = [threading.Thread(target=grow, args=pair) for pair in pairs]
            with MemorySampler(server.process.pid) as sampler:
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
                time.sleep(0.5)
        assert failures == [grpc.StatusCode.ABORTED] * SESSIONS
        used = (sampler.peak - idle) / MIB
        print(f"idle {idle / MIB:.0f} MiB, {used:.0f} MiB more")
        assert sampler.peak <= idle + SESSIONS * QUOTA + SPARE, used
