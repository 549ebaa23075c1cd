# SPDX-License-Identifier: Apache-2.0
"""Draw the layers of the import contracts into the pages of `deploy/docs/layers`.

`python tests/import_pictures.py` writes each contract of type `layers` in `.importlinter.toml` as a
Mermaid flowchart between `# generated: begin layers NAME` and `generated: end`: the contracts of a
room on its page, the contract between rooms into CONTRIBUTING.md. A new picture is appended to its
document, where it may be moved; the picture of a deleted contract is removed. `--check` changes
nothing and fails when a document is stale.
"""

import argparse
import re
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HEADING = "## Layers"
PAGES = {
    "nnpa_client": "deploy/docs/layers/client.md",
    "nnpa_emulator": "deploy/docs/layers/emulator.md",
    "mli_emulator": "deploy/docs/layers/emulator.md",
    "nnpa_network": "deploy/docs/layers/emulator.md",
    "nnpa_server": "deploy/docs/layers/server.md",
    "nnpa_tools": "deploy/docs/layers/tools.md",
    "nnpa_page": "deploy/docs/layers/server.md",
}
WHOLE = "CONTRIBUTING.md"
_BEGIN, _END = "<!--\n# generated: begin layers {}\n-->\n", "\n<!-- generated: end -->"
_PICTURE = re.compile(_BEGIN.format(r"(?P<name>[^\n]*)") + f".*?{_END}\n*", re.DOTALL)
_SEPARATOR = re.compile(r"\s*[|:]\s*")


@dataclass(frozen=True)
class Contract:
    """A contract of type `layers`; a layer is the names of its modules, the highest layer first."""

    name: str
    containers: tuple[str, ...]
    layers: tuple[tuple[str, ...], ...]
    exhaustive: bool

    @property
    def document(self) -> str:
        """The page of the room that has all modules of the contract, or CONTRIBUTING.md."""
        modules = self.containers or tuple(name for layer in self.layers for name in layer)
        roots = {module.strip("()").split(".")[0] for module in modules}
        pages = {PAGES.get(root, WHOLE) for root in roots}
        return pages.pop() if len(pages) == 1 else WHOLE


def read_contracts(root: Path = ROOT) -> list[Contract]:
    """Return the contracts of type `layers`, in the order of `.importlinter.toml`."""
    with (root / ".importlinter.toml").open("rb") as file:
        tables = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    return [
        Contract(
            name=table["name"],
            containers=tuple(table.get("containers", ())),
            layers=tuple(tuple(_SEPARATOR.split(layer)) for layer in table["layers"]),
            exhaustive=table.get("exhaustive", False),
        )
        for table in tables
        if table["type"] == "layers"
    ]


def flowchart(contract: Contract) -> str:
    """Return the contract as a flowchart: a box for a layer, arrows to the layer below."""
    names = [name for layer in contract.layers for name in layer]
    roots = {name.strip("()").split(".")[0] for name in names}
    prefix = f"{roots.pop()}." if len(roots) == 1 and len(names) > 1 else ""
    lines = ["```mermaid", "flowchart TD"]
    for number, layer in enumerate(contract.layers):
        label = " | ".join(name.replace(prefix, "", 1) for name in layer)
        lines.append(f'    L{number}["{label}"]')
    arrows = " --> ".join(f"L{number}" for number in range(len(contract.layers)))
    return "\n".join([*lines, f"    {arrows}", "```"])


def picture(contract: Contract) -> str:
    """Return the generated section of a contract: its name and its flowchart."""
    title = f"{contract.name[0].upper()}{contract.name[1:]}"
    return f"{_BEGIN.format(contract.name)}### {title}\n\n{flowchart(contract)}{_END}"


def drawn(text: str, contracts: list[Contract]) -> str:
    """Return a document with the pictures of its contracts renewed, appended or removed."""
    pictures = {contract.name: picture(contract) for contract in contracts}

    def renew(match: re.Match[str]) -> str:
        fresh = pictures.pop(match["name"], None)
        return f"{fresh}\n\n" if fresh else ""

    text = _PICTURE.sub(renew, text).rstrip() + "\n"
    if pictures and HEADING not in text:
        text += f"\n{HEADING}\n"
    return "\n".join([text, *(f"{fresh}\n" for fresh in pictures.values())]) if pictures else text


def stale(root: Path = ROOT, *, write: bool = False) -> list[str]:
    """Return the documents whose pictures differ from the contracts; with `write`, renew them."""
    contracts = read_contracts(root)
    outdated: list[str] = []
    for document in sorted({WHOLE, *PAGES.values()}):
        path = root / document
        text = path.read_text(encoding="utf-8")
        fresh = drawn(text, [each for each in contracts if each.document == document])
        if fresh != text:
            outdated.append(document)
            if write:
                path.write_text(fresh, encoding="utf-8")
    return outdated


def main() -> int:
    """Draw or check; return the exit code."""
    parser = argparse.ArgumentParser(description="Draw the import contracts into documents.")
    parser.add_argument("--check", action="store_true", help="fail when a document is stale")
    check: bool = parser.parse_args().check
    outdated = stale(write=not check)
    if check:
        for document in outdated:
            print(f"stale: {document}, run python tests/import_pictures.py", file=sys.stderr)
    return 1 if check and outdated else 0


if __name__ == "__main__":
    sys.exit(main())
