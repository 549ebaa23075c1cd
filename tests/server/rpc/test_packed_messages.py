# SPDX-License-Identifier: Apache-2.0
"""Compressed messages that unpack to many times their size."""

import gzip
import hashlib
import re
import struct
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.hostile import http2
from tests.server.process import serving
from tests.server.rpc.test_admission import ALICE, EXECUTE, connected, list_machines

SIZE = 63 << 20  # bytes, of zeros: 62 KiB when they are packed
CALLS = 40
MAX_GROWTH = 4 * SIZE  # a message or two may be unpacked before its call has ended


def most_memory(pid: int) -> int:
    """Return the bytes that a process had at most."""
    status = Path(f"/proc/{pid}/status").read_text()
    (kib,) = re.findall(r"^VmHWM:\s+(\d+) kB$", status, re.M)
    return int(kib) << 10


def test_packed_messages_without_a_token(tmp_path: Path) -> None:
    """Calls without a token are refused before their messages are unpacked."""
    tokens = tmp_path / "tokens.toml"
    tokens.write_text(f'[tokens.alice]\nsha256 = "{hashlib.sha256(b"secret").hexdigest()}"\n')
    packed = gzip.compress(bytes(SIZE), 9)
    headers = http2.header_block(EXECUTE, extra=[("grpc-encoding", "gzip")])

    def send(_number: int) -> None:
        connection = http2.Connection(server.address)
        connection.send(http2.frame(http2.HEADERS, http2.END_HEADERS, 1, headers))
        connection.data(1, struct.pack(">BI", 1, len(packed)) + packed)
        time.sleep(1.0)
        connection.close()

    flags = ("--listen", "127.0.0.1:0", "--tokens", str(tokens))
    with serving(tmp_path, *flags) as server, connected(server.address) as client:
        list_machines(client, ALICE)
        before = most_memory(server.process.pid)
        with ThreadPoolExecutor(CALLS) as pool:
            list(pool.map(send, range(CALLS)))
        list_machines(client, ALICE)
        assert server.log_text().count("status=TOKEN_INVALID") == CALLS
        assert most_memory(server.process.pid) - before < MAX_GROWTH
