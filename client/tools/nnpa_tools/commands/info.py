# SPDX-License-Identifier: Apache-2.0
"""`nnpa info`: the machines of a server, with their functions and limits."""

from typing import Unpack

import click
from google.protobuf.json_format import MessageToDict
from nnpa.zdnn.v1.accelerator_pb2 import Machine
from nnpa.zdnn.v1.operation_pb2 import NnpaFunctionCode
from nnpa_client._values.display import machine_name
from nnpa_client.connection import list_machines
from rich.table import Table

from nnpa_tools.commands.exit_codes import EXIT_CODES_WITH_TARGET, reported
from nnpa_tools.commands.reaching import Reaching, credentials, reaching_options
from nnpa_tools.commands.terminal import Terminal, json_option, print_json
from nnpa_tools.tables import simple_table


@click.command(epilog=EXIT_CODES_WITH_TARGET)
@click.argument("target", required=False)
@json_option("Print the machines as the wire has them.")
@reaching_options
def info(target: str | None, as_json: bool, **reaching: Unpack[Reaching]) -> None:
    """List the machines of a server with their functions and limits."""
    with reported():
        machines = list_machines(target, **credentials(reaching))
    if as_json:
        print_json([MessageToDict(machine) for machine in machines])
        return
    console = Terminal()
    console.print(_limits_table(machines))
    console.print(_functions_table(machines))


def _limits_table(machines: list[Machine]) -> Table:
    headings = ("name", "alias", "machine", "NNPA", "max dim4..dim1", "max MiB")
    table = simple_table(headings, title="Machines")
    for machine in machines:
        installed = machine.nnpa_installed
        sizes = (machine.max_dim4, machine.max_dim3, machine.max_dim2, machine.max_dim1)
        limits = " ".join(str(size or machine.max_dim_idx_size) for size in sizes)
        table.add_row(
            machine_name(machine),
            ", ".join(machine.aliases),
            machine.display_name,
            "yes" if installed else "no",
            limits if installed else "",
            str(machine.max_tensor_size >> 20) if installed else "",
        )
    return table


def _functions_table(machines: list[Machine]) -> Table:
    """Return one row per function that any machine has, one column per machine with NNPA."""
    able = [machine for machine in machines if machine.nnpa_installed]
    table = simple_table(("function", "code"), right=("code",), title="Functions")
    for machine in able:
        table.add_column(machine_name(machine), justify="center")
    for code in sorted({code for machine in able for code in machine.functions}):
        marks = ["yes" if code in machine.functions else "-" for machine in able]
        table.add_row(NnpaFunctionCode.Name(code), str(code), *marks)
    return table
