"""The packages that an image holds, by its own files: dpkg's status and Python's dist-info."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import quote

from bedplate.decide.images.packages import normal

STATUS = "var/lib/dpkg/status"
RELEASES = ("etc/os-release", "usr/lib/os-release")
_METADATA = re.compile(r"(?:.+/)?[^/]+\.dist-info/METADATA")


@dataclass(frozen=True, order=True)
class Package:
    """One installed package; kind: deb or pypi; where: the file that says so."""

    kind: str
    name: str
    version: str
    architecture: str
    where: str
    distribution: str = ""

    @property
    def url(self) -> str:
        """Its package URL (purl): https://github.com/package-url/purl-spec."""
        version = quote(self.version, safe="")
        if self.kind == "pypi":
            return f"pkg:pypi/{quote(self.name, safe='')}@{version}"
        of, _, release = self.distribution.partition("-")
        said = [f"arch={quote(self.architecture, safe='')}"] if self.architecture else []
        said += [f"distro={quote(self.distribution, safe='')}"] if release else []
        asked = f"?{'&'.join(said)}" if said else ""
        return f"pkg:deb/{quote(of or 'unknown', safe='')}/{quote(self.name, safe='')}@{version}{asked}"


def wanted(path: str) -> bool:
    """Whether a file of an image, by its path without a leading slash, names packages."""
    return path == STATUS or path in RELEASES or _METADATA.fullmatch(path) is not None


def packages(files: Mapping[str, bytes]) -> list[Package]:
    """Every installed package, sorted."""
    distribution = _distribution(files)
    found: set[Package] = set()
    for path, data in files.items():
        text = data.decode(errors="replace")
        if path == STATUS:
            found |= set(_debs(text, distribution))
        elif _METADATA.fullmatch(path):
            head = _fields(text.partition("\n\n")[0])
            if head.get("Name") and head.get("Version"):
                found.add(Package("pypi", normal(head["Name"]), head["Version"], "", path))
    return sorted(found)


def _debs(text: str, distribution: str) -> Iterator[Package]:
    for entry in text.split("\n\n"):
        said = _fields(entry)
        if said.get("Status", "").endswith(" installed") and said.get("Package") and said.get("Version"):
            yield Package("deb", said["Package"], said["Version"], said.get("Architecture", ""), STATUS, distribution)


def _fields(text: str) -> dict[str, str]:
    return {key: value.strip() for key, value in reversed(re.findall(r"^([A-Za-z-]+): *(.*)$", text, re.MULTILINE))}


def _distribution(files: Mapping[str, bytes]) -> str:
    """`ubuntu-24.04`, as os-release says it; empty where nothing does."""
    text = next((files[path].decode(errors="replace") for path in RELEASES if path in files), "")
    said = {key: value.strip("\"'") for key, value in re.findall(r"^([A-Z_]+)=(.*)$", text, re.MULTILINE)}
    return f"{said['ID']}-{said['VERSION_ID']}" if said.get("ID") and said.get("VERSION_ID") else said.get("ID", "")
