# SPDX-License-Identifier: Apache-2.0
"""Print the software bill of materials of this Python's environment, as CycloneDX 1.6.

    python sbom.py WHEEL...     the files that were installed, for their hashes

It has the Python packages with their licences, hashes and dependencies, and where the system is
Debian's, its packages. The same environment gives the same text.
"""

import hashlib
import json
import platform
import re
import sys
import uuid
from collections.abc import Iterable, Iterator, Mapping
from email.message import Message
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import TypeAlias, cast

Json: TypeAlias = Mapping[str, object]
_PRODUCT = "nnpa"
_STATUS = Path("/var/lib/dpkg/status")
_RELEASE = Path("/etc/os-release")
_MAX_NAME = 64  # characters of a licence's name; longer texts are licences themselves


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
            "licenses": [{"license": {"name": f"see /usr/share/doc/{name}/copyright"}}],
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
