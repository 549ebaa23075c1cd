# SPDX-License-Identifier: Apache-2.0
"""Attack a build of the server, row by row, and say which rows hold."""

import importlib
import json
import os
import pkgutil
import shutil
import tempfile
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

import tests.hostile.attacks
from tests.hostile.bystander import BystanderProcess, Phase
from tests.hostile.gauges import MIB, MemorySampler, memory, wait_until_quiet
from tests.hostile.scene import BYSTANDER, ROWS, Row, Scene
from tests.hostile.target import SESSION_BYTES, SESSIONS, Server

IDLE_SECONDS, LATER_SECONDS = 3.0, 1.0
QUIET_TIMEOUT = 60.0
SPARE = 512 * MIB
MAX_LOAD = float(os.cpu_count() or 1)
"""Threads that want a processor; of more some rows say nothing of bystanders."""
MAX_SHARE = 1.3  # of the budget, with what the server's memory has besides
HEALTH_FLAG = "--health-listen"


@dataclass
class Verdict:
    """The result of one row; times in milliseconds, memory in MiB.

    `unsure` says why the bystanders' times do not count against the server.
    """

    number: str
    title: str
    broken: list[str]
    seen: list[str]
    idle_p99: float = 0.0
    attack_p99: float = 0.0
    longest: float = 0.0
    idle_memory: int = 0
    peak_memory: int = 0
    unsure: str = ""

    @property
    def word(self) -> str:
        """`held`, `broken`, or `unsure`."""
        return "broken" if self.broken else "unsure" if self.unsure else "held"


def load_rows() -> dict[str, Row]:
    """Return all rows by number, in order."""
    for module in pkgutil.iter_modules(tests.hostile.attacks.__path__):
        importlib.import_module(f"tests.hostile.attacks.{module.name}")
    return dict(sorted(ROWS.items(), key=lambda entry: _order(entry[0])))


def _order(number: str) -> tuple[int, str]:
    digits = "".join(filter(str.isdigit, number))
    return int(digits), number


def choose(numbers: Sequence[str]) -> list[Row]:
    """Return the rows of numbers; "3" means 3a, 3b and so on, nothing means all."""
    rows = load_rows()
    chosen = [
        row
        for row in rows.values()
        if not numbers or row.number in numbers or str(_order(row.number)[0]) in numbers
    ]
    if not chosen:
        raise SystemExit(f"no row {' '.join(numbers)}; there are {' '.join(rows)}")
    return chosen


def attack(executable: Path, row: Row) -> Verdict:
    """Make one attack on servers of its own; a row that cannot be made is broken."""
    folder = Path(tempfile.mkdtemp(prefix="nnpa-attack-"))
    scene = Scene(executable, folder, row)
    verdict = Verdict(row.number, row.title, scene.broken, scene.seen)
    try:
        if row.has_bystander:
            _attack_beside_bystander(scene, verdict)
        else:
            row.attack(scene)
    except Exception as error:
        scene.broken.append(f"the attack failed: {error!r}"[:300])
        scene.seen.append(traceback.format_exc(limit=-3))
    finally:
        scene.kill_servers()
        shutil.rmtree(folder, ignore_errors=True)
    return verdict


def _attack_beside_bystander(scene: Scene, verdict: Verdict) -> None:
    """Attack while a bystander works, and measure both; its complaints are part of the verdict."""
    server = scene.start(*_health_flags(scene))
    wait_until_quiet(server.pid, QUIET_TIMEOUT)
    bystander = BystanderProcess(
        server.address, server.tokens.get(BYSTANDER, ""), _health_address(server)
    )
    try:
        wait_until_quiet(server.pid, QUIET_TIMEOUT, share=0.5)
        bystander.enter("idle")
        scene.stay(IDLE_SECONDS)
        idle = scene.idle_memory = memory(server.pid)
        bystander.enter("attack")
        load = os.getloadavg()[0]
        with MemorySampler(server.pid) as sampler:
            scene.row.attack(scene)
            scene.stay(LATER_SECONDS)
        phases = bystander.end()
    finally:
        bystander.kill()
    _judge(scene.row, verdict, phases, idle, sampler)
    _judge_times(scene, verdict, phases["attack"].complaints(), load)
    scene.require(server.is_alive(), f"the server ended, {server.process.returncode}")


def _health_flags(scene: Scene) -> list[str]:
    """Return the flag of a listener for health alone, if the build has it."""
    if not scene.offers(HEALTH_FLAG):
        return []
    return [HEALTH_FLAG, f"unix:{scene.folder / 'health.sock'}"]


def _health_address(server: Server) -> str:
    path = server.folder.parent / "health.sock"
    return f"unix:{path}" if path.exists() else ""


def _most(row: Row) -> int:
    """Return the bytes that an attack may take: for all sessions together, and for the budget."""
    if row.budget:
        return SESSIONS * row.session_bytes + int(MAX_SHARE * row.budget)
    return SESSIONS * SESSION_BYTES + SPARE


def _judge_times(scene: Scene, verdict: Verdict, complaints: list[str], load: float) -> None:
    """Add the bystanders' late calls; on a busy machine they make the verdict unsure instead."""
    late = [*scene.late, *complaints]
    if late and scene.row.idle_machine and load > MAX_LOAD:
        verdict.unsure = f"load {load:.1f}, at most {MAX_LOAD:g}: repeat it on an idle machine"
        verdict.seen += late
    else:
        verdict.broken += late


def _judge(
    row: Row, verdict: Verdict, phases: dict[str, Phase], idle: int, sampler: MemorySampler
) -> None:
    """Add the bystander's complaints and the memory's growth to the verdict."""
    quiet, busy = phases["idle"], phases["attack"]
    verdict.idle_p99, verdict.attack_p99 = (
        round(1e3 * phase.quantile(0.99), 1) for phase in (quiet, busy)
    )
    verdict.longest = round(1e3 * busy.longest, 1)
    verdict.idle_memory, verdict.peak_memory = idle // MIB, sampler.peak // MIB
    verdict.broken += [f"before the attack: {text}" for text in quiet.failures]
    limit = (idle + _most(row)) // MIB
    if verdict.peak_memory > limit:
        verdict.broken.append(f"memory: {verdict.peak_memory} MiB, at most {limit}")
    if sampler.was_killed:
        verdict.broken.append(f"killed at {sampler.ceiling // MIB} MiB")


def run(executable: Path, rows: Sequence[Row], console: Console) -> list[Verdict]:
    """Make the attacks one after the other, each with a line as it ends; return the verdicts."""
    verdicts: list[Verdict] = []
    for row in rows:
        verdict = attack(executable, row)
        verdicts.append(verdict)
        console.print(escape(f"{row.number:>4} {verdict.word:6} {row.title}"))
        for text in filter(None, (*verdict.broken, verdict.unsure, *verdict.seen)):
            console.print(escape(f"            {text}"), style="dim", highlight=False)
    return verdicts


def show(console: Console, verdicts: Sequence[Verdict]) -> None:
    """Print the table of all rows."""
    table = Table("row", "attack", "", "p99 idle", "p99 attacked", "longest", "idle", "peak",
                  title="the bystander in ms, memory in MiB", title_justify="left")  # fmt: skip
    for verdict in verdicts:
        numbers = (verdict.idle_p99, verdict.attack_p99, verdict.longest,
                   verdict.idle_memory, verdict.peak_memory)  # fmt: skip
        table.add_row(verdict.number, escape(verdict.title), verdict.word,
                      *(str(number) if number else "" for number in numbers))  # fmt: skip
    console.print(table)
    counts = Counter(verdict.word for verdict in verdicts)
    text = f"{counts['held']} held, {counts['broken']} broken"
    unsure = f", {counts['unsure']} unsure: they need an idle machine" if counts["unsure"] else ""
    console.print(text + unsure)


def to_json(executable: Path, verdicts: Sequence[Verdict]) -> str:
    """Return the verdicts as JSON."""
    rows = [{"verdict": verdict.word, **asdict(verdict)} for verdict in verdicts]
    return json.dumps({"server": executable.name, "rows": rows}, indent=1) + "\n"
