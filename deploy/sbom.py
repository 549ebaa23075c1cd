# SPDX-License-Identifier: Apache-2.0
"""Print the software bill of materials of this Python's environment, as CycloneDX 1.6.

    python sbom.py WHEEL...     the files that were installed, for their hashes

It has the Python packages with their licences, hashes and dependencies, what their wheels bring
along, and where the system is Debian's, its packages. The same environment gives the same text.
"""

import hashlib
import json
import platform
import re
import sys
import uuid
from collections.abc import Iterable, Iterator, Mapping
from email.message import Message
from fnmatch import fnmatch
from importlib.metadata import Distribution, PackagePath, distributions
from pathlib import Path
from typing import TypeAlias, cast

Json: TypeAlias = Mapping[str, object]
_PRODUCT = "nnpa"
_STATUS = Path("/var/lib/dpkg/status")
_RELEASE = Path("/etc/os-release")
_DOCUMENTS = Path("/usr/share/doc")
_MAX_NAME = 64  # characters of a licence's name; longer texts are licences themselves
_NOTICE = re.compile(r"licen[cs]e|notice|copying", re.I)
# A paragraph on bundled files in a wheel's notices, in the form of Debian's copyright files.
_BUNDLED = re.compile(
    r"^Name: (?P<name>.+)\nFiles: (?P<files>.+)\n(?:(?!Name: ).*\n)*?License: (?P<licence>.+)$",
    re.MULTILINE,
)
_OF_PARTS = ("type", "name", "version", "licenses", "purl")  # what is copied of a wheel's own bill
_NOTED: list[Json] = [{"license": {"name": "see the wheel's notices"}}]


def normalized(name: str) -> str:
    """Return the name of a package as package URLs have it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def licences(package: Distribution) -> list[Json]:
    """Return a package's licences: SPDX's expression, else its classifiers, else its own words."""
    metadata = cast("Message", package.metadata)  # which it is, says its documentation
    expression = metadata.get("License-Expression")
    if expression:
        return [{"expression": expression}]
    prefix = "License :: "
    names = [
        classifier.rpartition(" :: ")[2]
        for classifier in metadata.get_all("Classifier") or ()
        if classifier.startswith(prefix) and classifier != "License :: OSI Approved"
    ]
    text = (metadata.get("License") or "").strip()
    if not names and text and len(text) <= _MAX_NAME and "\n" not in text:
        names = [text]
    return [{"license": {"name": name}} for name in names or ["see the package's files"]]


def digests(wheels: Iterable[Path]) -> dict[str, str]:
    """Return the SHA-256 of wheels by the packages' names."""
    return {
        normalized(wheel.name.partition("-")[0]): hashlib.sha256(wheel.read_bytes()).hexdigest()
        for wheel in wheels
    }


def reference(package: Distribution) -> str:
    """Return a package's package URL."""
    return f"pkg:pypi/{normalized(package.name)}@{package.version}"


def notices(package: Distribution) -> list[PackagePath]:
    """Return the files of a package that have licences and notices."""
    return [
        file
        for file in package.files or ()
        if _NOTICE.search(file.name) and not file.suffix.startswith(".py") and _is_there(file)
    ]


def _is_there(file: PackagePath) -> bool:
    return Path(str(file.locate())).is_file()


def bundled(package: Distribution) -> list[Json]:
    """Return what a wheel brings along: by its own bills of materials, or by its notices."""
    parts: dict[str, Json] = {}
    for file in package.files or ():
        if file.parent.name == "sboms" and file.suffix == ".json" and _is_there(file):
            for part in json.loads(file.read_text())["components"]:
                if normalized(part["name"]) != normalized(package.name):
                    facts = {key: part[key] for key in _OF_PARTS if key in part}
                    name = f"{part['name']}@{part.get('version', '')}"
                    parts[name] = {"licenses": _NOTED, **facts}
    parts = parts or _noted(package)
    owner = reference(package)
    return [{**part, "bom-ref": f"{owner}#{key}"} for key, part in sorted(parts.items())]


def _noted(package: Distribution) -> dict[str, Json]:
    """Return what a wheel's notices list, and libraries of others that they do not."""
    text = "\n".join(file.read_text() for file in notices(package))
    paragraphs = [match.groupdict() for match in _BUNDLED.finditer(text)]
    parts: dict[str, Json] = {
        entry["name"]: {
            "type": "library",
            "name": entry["name"],
            "licenses": [{"license": {"name": entry["licence"]}}],
        }
        for entry in paragraphs
    }
    for file in package.files or ():
        is_foreign = file.parts[0].endswith(".libs") and _is_there(file)
        if is_foreign and not any(fnmatch(str(file), f"{entry['files']}*") for entry in paragraphs):
            parts[file.name] = {"type": "file", "name": file.name, "licenses": _NOTED}
    return parts


def component(package: Distribution, wheels: Mapping[str, str]) -> Json:
    """Return a Python package as a component."""
    is_product = normalized(package.name) == _PRODUCT
    described: dict[str, object] = {
        "type": "application" if is_product else "library",
        "bom-ref": reference(package),
        "name": package.name,
        "version": package.version,
        "licenses": licences(package),
        "purl": reference(package),
    }
    digest = wheels.get(normalized(package.name))
    if digest is not None:
        described["hashes"] = [{"alg": "SHA-256", "content": digest}]
    files = sorted(map(str, notices(package)))
    if files:
        described["properties"] = [{"name": "nnpa:notices", "value": file} for file in files]
    parts = bundled(package)
    if parts:
        described["components"] = parts
    return described


def depends_on(package: Distribution, references: Mapping[str, str]) -> list[str]:
    """Return the packages that a package requires and that are installed."""
    names: set[str] = set()
    for requirement in package.requires or ():
        name = re.match(r"[A-Za-z0-9._-]+", requirement)
        is_extra = "extra ==" in requirement and normalized(package.name) != _PRODUCT
        if name is not None and not is_extra:
            names.add(normalized(name[0]))
    return sorted(references[name] for name in names & references.keys())


def debian_licences(name: str) -> list[Json]:
    """Return the licences that a Debian package's copyright file names, where programs read it."""
    file = _DOCUMENTS / name / "copyright"
    text = file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""
    names: list[str] = []
    if text.startswith("Format:"):
        names = sorted({line.strip() for line in re.findall(r"^License:(.*\S)", text, re.M)})
    return [{"license": {"name": name}} for name in names or [f"see {file}"]]


def system_packages() -> Iterator[Json]:
    """Yield Debian's packages as components."""
    release = dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', _RELEASE.read_text(), re.M))
    for entry in _STATUS.read_text(encoding="utf-8").split("\n\n"):
        facts = dict(re.findall(r"^(Package|Version|Architecture|Status): (.*)$", entry, re.M))
        if not facts.get("Status", "").endswith(" installed"):
            continue
        name, version = facts["Package"], facts["Version"]
        distribution = f"{release.get('ID', 'debian')}-{release.get('VERSION_ID', '')}"
        purl = (
            f"pkg:deb/{release.get('ID', 'debian')}/{name}@{version.replace('+', '%2B')}"
            f"?arch={facts['Architecture']}&distro={distribution}"
        )
        yield {
            "type": "library",
            "bom-ref": purl,
            "name": name,
            "version": version,
            "licenses": debian_licences(name),
            "purl": purl,
        }


def bill(wheels: Mapping[str, str]) -> Json:
    """Return the bill of materials; `wheels` are hashes by name."""
    packages = sorted(distributions(), key=lambda package: normalized(package.name))
    references = {normalized(package.name): reference(package) for package in packages}
    components = [component(package, wheels) for package in packages]
    (product,) = (part for part in components if part["type"] == "application")
    system = sorted(system_packages(), key=str) if _STATUS.exists() else []
    python: Json = {
        "type": "platform",
        "bom-ref": "python",
        "name": platform.python_implementation(),
        "version": platform.python_version(),
        "licenses": [{"license": {"id": "PSF-2.0"}}],
    }
    content = {
        "metadata": {"component": product},
        "components": [*(part for part in components if part is not product), python, *system],
        "dependencies": [
            {"ref": reference(package), "dependsOn": depends_on(package, references)}
            for package in packages
        ],
    }
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(content, sort_keys=True))
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        **content,
    }


if __name__ == "__main__":
    json.dump(bill(digests(map(Path, sys.argv[1:]))), sys.stdout, indent=1)
