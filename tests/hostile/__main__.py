# SPDX-License-Identifier: Apache-2.0
"""Attack, fuzz or soak a server of any build: `python -m tests.hostile attack|fuzz|soak`.

The exit code is 1 when the server did not hold.
"""

import argparse
import itertools
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tests.hostile import attack, corpus, fuzz, soak, state
from tests.hostile.gauges import MIB
from tests.hostile.target import OWN_SERVER

DEFAULT_SECONDS = 120.0
WIDTH = 140


def main(arguments: Sequence[str]) -> int:
    """Run a command; return the exit code."""
    parsed = _parser().parse_args(arguments)
    if state.BACKGROUND in arguments:
        if parsed.state is None:
            raise SystemExit(f"{state.BACKGROUND} needs --state FILE")
        state.go_to_background(arguments, parsed.state.resolve())
        return 0
    code: int = parsed.run(parsed, Console(width=WIDTH))
    return code


def _attack(arguments: argparse.Namespace, console: Console) -> int:
    verdicts = attack.run(arguments.server, attack.choose(arguments.rows), console)
    attack.show(console, verdicts)
    if arguments.json is not None:
        arguments.json.write_text(attack.to_json(arguments.server, verdicts), encoding="utf-8")
    return int(any(verdict.broken for verdict in verdicts))


def _fuzz(arguments: argparse.Namespace, console: Console) -> int:
    if arguments.case is not None or arguments.corpus:
        cases = corpus.kept_cases()
        if arguments.case is not None:
            cases = itertools.chain([corpus.case(arguments.seed, arguments.case)])
        ends = fuzz.replay(arguments.server, cases)
        console.print(escape("\n".join(map(str, ends))))
        return int(any(end.fault for end in ends))
    progress = fuzz.Progress.load(arguments.state, arguments.seed)
    bounds = fuzz.Bounds(arguments.seconds, arguments.messages, arguments.calls)
    if bounds == fuzz.Bounds():
        bounds = fuzz.Bounds(DEFAULT_SECONDS)
    fuzzer = fuzz.Fuzzer(
        arguments.server,
        progress,
        bounds,
        threads=arguments.threads,
        state_file=arguments.state,
        findings=arguments.findings,
    )
    fuzzer.run()
    _show_fuzz(console, progress, fuzzer.lacking())
    return int(bool(progress.findings or fuzzer.lacking()))


def _show_fuzz(console: Console, progress: fuzz.Progress, lacking: Sequence[str]) -> None:
    table = Table("method", "sent", "past the session", "OK", "longest, s")
    for path, count in progress.methods.items():
        numbers = (count.sent, count.past, count.ok, count.longest)
        table.add_row(path.lstrip("/"), *map(str, numbers))
    console.print(table)
    sent = sum(count.sent for count in progress.methods.values())
    rests = " ".join(str(rest["memory"] // MIB) for rest in progress.rests[-10:])
    console.print(f"seed {progress.seed}, {sent} messages of {progress.next} cases "
                  f"in {progress.seconds:.0f} s; memory at rest, MiB: {rests}")  # fmt: skip
    console.print(f"ends: {progress.codes}")
    for path in lacking:
        console.print(escape(f"too few calls: {path}"))
    for finding in progress.findings:
        console.print(escape(f"{finding.count:>5} {finding.method or 'server'}: {finding.text}"))
        console.print(escape(f"      case {finding.origin}: {finding.smallest}"), style="dim")
    console.print(f"{len(progress.findings)} findings")


def _soak(arguments: argparse.Namespace, console: Console) -> int:
    if arguments.png is not None and find_spec("matplotlib") is None:
        console.print("--png needs matplotlib: pip install matplotlib")
        return 2
    progress = soak.soak(arguments.server, arguments.minutes, arguments.clients, arguments.state)
    if arguments.json is not None:
        state.save(arguments.json, progress.to_json())
    if arguments.png is not None:
        soak.draw(progress, arguments.png)
    samples = progress.runs[-1]
    calls = sum(sample.calls for sample in samples)
    failed = sum(sample.failed for sample in samples)
    first, last = samples[0], samples[-1]
    console.print(f"{progress.seconds / 60:.1f} minutes, {calls} calls, {failed} failed; "
                  f"memory {first.own_memory // MIB} to {last.own_memory // MIB} MiB, "
                  f"with workers {first.memory // MIB} to {last.memory // MIB}, "
                  f"p50 {last.p50:g} ms, p99 {last.p99:g} ms")  # fmt: skip
    complaints = progress.complaints()
    for text in complaints:
        console.print(escape(text))
    console.print("broken" if complaints else "held")
    return int(bool(complaints))


def _add_fuzz(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    add(
        "--seconds",
        type=float,
        default=0.0,
        help="default 120, if there is no other bound; thrice for --calls",
    )
    add("--messages", type=int, default=0, help="end after so many in all runs")
    add("--calls", type=int, default=0, metavar="PER_METHOD", help="that each method must have")
    add("--seed", type=int, default=1, help="the same seed sends the same messages")
    add("--case", type=int, metavar="NUMBER", help="send one case of the seed, and tell its end")
    add("--corpus", action="store_true", help="send what once broke something, and nothing else")
    add("--threads", type=int, default=4)
    add("--findings", type=Path, metavar="DIR", help="keep the smallest cases that break there")
    command.set_defaults(run=_fuzz)


def _add_soak(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    add("--minutes", type=float, required=True, help="of all runs together")
    add("--clients", type=int, default=32)
    add("--png", type=Path, metavar="FILE", help="draw memory, p50 and p99")
    add("--json", type=Path, metavar="FILE", help="keep all samples")
    command.set_defaults(run=_soak)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("attack", help="known attacks beside a bystander, row by row")
    command.add_argument("--rows", nargs="+", default=[], metavar="ROW", help="default all")
    command.add_argument("--json", type=Path, metavar="FILE", help="keep the verdicts")
    command.set_defaults(run=_attack, state=None)
    for command, add in (
        (commands.add_parser("fuzz", help="mutated calls of every method"), _add_fuzz),
        (commands.add_parser("soak", help="load for a long time"), _add_soak),
    ):
        add(command)
        command.add_argument("--state", type=Path, metavar="FILE", help="go on from here, if it is")
        command.add_argument(state.BACKGROUND, action="store_true", help="with --state: run alone")
    text = "the nnpa-server of another build; default this tree's"
    for command in commands.choices.values():
        command.add_argument("--server", type=Path, default=OWN_SERVER, metavar="PATH", help=text)
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
