"""The lint of one file: its bytes and its name -> every finding, and the scripts that a shell has yet to read.

Invariants
- It never fails: whatever the bytes are, there are findings or there are none.
- A file with a key that is not known, anywhere, has a finding.
- What it cannot look into is a finding: unknown is never a pass.

Example: lint(b"#cloud-config\\nautoinstal: {version: 1}\\n", "user-data") finds that `autoinstal` is unknown and
that `autoinstall` is missing.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from bedplate.decide.autoinstall.bootline import check_boot
from bedplate.decide.autoinstall.cloudconfig import CLOUD, HOSTNAME, USER_DATA
from bedplate.decide.autoinstall.credentials import SSH_KEYS, secrets
from bedplate.decide.autoinstall.findings import Finding, Release, Report, Script
from bedplate.decide.autoinstall.installer import AUTOINSTALL, SECTION, check_autoinstall
from bedplate.decide.autoinstall.network import NETWORK
from bedplate.decide.autoinstall.shapes import UNCHECKED, Keys, Text, Told, examine, word
from bedplate.model.faults import BadInput, Fault
from bedplate.model.text import Document, read_yaml

HEADER = "#cloud-config"
# Far above what a machine needs; a boot server holds thousands of seeds in memory.
LARGEST_BYTES = 256 * 1024
SEED_FILES = ("user-data", "meta-data", "vendor-data")  # what has to answer, or cloud-init retries or gives up


class Kind(StrEnum):
    """What a file is."""

    USER_DATA = "user-data"
    AUTOINSTALL = "autoinstall"  # /autoinstall.yaml: the section by itself
    VENDOR_DATA = "vendor-data"
    META_DATA = "meta-data"
    NETWORK = "network-config"
    GRUB = "grub"
    IPXE = "ipxe"


@dataclass(frozen=True)
class Linted:
    kind: Kind
    findings: tuple[Finding, ...]
    scripts: tuple[Script, ...]


def kind_of(name: str, data: bytes) -> Kind:
    """What a file is, by its name, else by what stands in it."""
    base = name.replace("\\", "/").rpartition("/")[2].lower()
    for kind in (Kind.META_DATA, Kind.VENDOR_DATA, Kind.NETWORK, Kind.USER_DATA):
        if base == kind or base.startswith(f"{kind}.") or base.endswith((f"-{kind}", f".{kind}")):
            return kind
    if data.startswith(b"#!ipxe") or base.endswith(".ipxe"):
        return Kind.IPXE
    if base.endswith((".cfg", ".grub")) or re.search(rb"^\s*menuentry\s", data, re.MULTILINE):
        return Kind.GRUB
    if base in ("autoinstall.yaml", "autoinstall.yml"):
        return Kind.AUTOINSTALL
    if re.search(rb"^network:", data, re.MULTILINE) and re.search(rb"^\s+version: 2\s*$", data, re.MULTILINE):
        return Kind.NETWORK if not re.search(rb"^autoinstall:", data, re.MULTILINE) else Kind.USER_DATA
    return Kind.USER_DATA


def lint(data: bytes, file: str, *, kind: Kind | None = None, release: Release = "24.04") -> Linted:
    """Everything that is wrong with a file."""
    kind = kind or kind_of(file, data)
    findings: list[Finding] = []

    def tell(rule: str, line: int | None, found: str, remedy: str = "") -> None:
        findings.append(Finding(Fault(file, line, found, remedy), rule))

    if len(data) > LARGEST_BYTES:
        tell("size", None, f"{len(data)} bytes, more than {LARGEST_BYTES}", "fetch what is large in a command")
        return Linted(kind, tuple(findings), ())
    if data.startswith(b"\xef\xbb\xbf"):
        tell("text", 1, "a byte order mark", "save the file without it")
        data = data[3:]
    try:
        text = data.decode()
    except UnicodeDecodeError as fault:
        line = data.count(b"\n", 0, fault.start) + 1
        tell("text", line, f"byte 0x{data[fault.start]:02x} is not UTF-8", "save the file as UTF-8")
        return Linted(kind, tuple(findings), ())
    if "\r" in text:
        tell("text", text[: text.index("\r")].count("\n") + 1, "line ends of Windows", "save the file with LF")
    if kind in (Kind.GRUB, Kind.IPXE):
        report = Report(Document(file, None), release)
        check_boot(report, text, kind)
        return Linted(kind, tuple(sorted({*findings, *report.findings})), ())
    if kind in (Kind.USER_DATA, Kind.VENDOR_DATA) and not _headed(text, kind):
        tell("header", 1, f'the first line is "{text.partition(chr(10))[0][:60]}"', f"exactly {HEADER}")
    try:
        document = read_yaml(text, file)
    except BadInput as unreadable:
        findings += [Finding(fault, "yaml") for fault in unreadable.faults]
        return Linted(kind, tuple(sorted(set(findings))), ())
    except RecursionError:
        tell("yaml", None, "too deep to be read", "no seed is")
        return Linted(kind, tuple(findings), ())
    findings += [Finding(fault, _reading_rule(fault)) for fault in document.faults]
    report = Report(document, release)
    _check(report, kind, document.data)
    secrets(report, document.data)
    _comments(report, text)
    return Linted(kind, tuple(sorted({*findings, *report.findings})), tuple(report.scripts))


def lint_seed(files: Collection[str], folder: str) -> list[Finding]:
    """What is missing in a seed's directory."""
    return [
        Finding(Fault(f"{folder}/{name}", None, "not there", "an empty file is enough"), "seed")
        for name in SEED_FILES
        if name not in files
    ]


def accepted(findings: Sequence[Finding], rules: Collection[str]) -> list[Finding]:
    """The findings without those of rules that a person accepts."""
    return [finding for finding in findings if finding.rule not in rules]


def _headed(text: str, kind: Kind) -> bool:
    return text.partition("\n")[0].rstrip("\r") == HEADER or (kind is Kind.VENDOR_DATA and not text.strip())


def _reading_rule(fault: Fault) -> str:
    """The rule of a fault that reading the YAML told; read_yaml knows three kinds of them."""
    if "stands here twice" in fault.found:
        return "duplicate-key"
    return "yaml" if "as a key" in fault.found else "yaml-trap"


def _check(report: Report, kind: Kind, data: Any) -> None:
    empty = data is None
    if kind in (Kind.META_DATA, Kind.VENDOR_DATA) and empty:
        return  # it has to answer, not to say anything
    if not isinstance(data, dict):
        report.add("yaml", (), f"a {kind} file is a mapping", "KEY: VALUE lines")
        return
    if kind is Kind.NETWORK:
        examine(NETWORK, report, (), data)
    elif kind is Kind.META_DATA:
        _META_DATA.check(report, (), data)
    elif kind is Kind.VENDOR_DATA:
        USER_DATA.check(report, (), data)
    elif kind is Kind.AUTOINSTALL:
        _alone(report, data)
    else:
        _user_data(report, data)


def _user_data(report: Report, data: dict[str, Any]) -> None:
    """cloud-config of the live system, with the section of the installer in it."""
    for key in data:
        if key in AUTOINSTALL and key not in CLOUD:
            report.add("autoinstall", (key,), f'"{key}" is a key of autoinstall, and stands beside it', "indent it")
    misplaced = AUTOINSTALL.keys() - CLOUD.keys()
    _LIVE.check(report, (), {key: value for key, value in data.items() if key not in misplaced})
    files = data.get("write_files")
    for index, file in enumerate(files if isinstance(files, list) else ()):
        if isinstance(file, dict) and file.get("path") == "/autoinstall.yaml":
            found = "/autoinstall.yaml comes before the `autoinstall` of this file"
            report.add("rewritten", ("write_files", index, "path"), found, "write it below `autoinstall`")
    if "autoinstall" not in data:
        report.add("autoinstall", (), "no `autoinstall` in it: the installer asks", "autoinstall: {version: 1, …}")


def _alone(report: Report, data: dict[str, Any]) -> None:
    if "autoinstall" not in data:
        check_autoinstall(report, (), data)
        return
    for key in data:
        if key != "autoinstall":
            report.add("autoinstall", (key,), f'"{key}" beside `autoinstall`', "nothing else may stand here")
    check_autoinstall(report, ("autoinstall",), data["autoinstall"])


_LIVE = Keys({**CLOUD, "autoinstall": SECTION})
_META_DATA = Keys(
    {
        "instance-id": Text(r"[A-Za-z0-9._:@-]+", "letters, digits and ._:@-", longest=128),
        "local-hostname": HOSTNAME,
        "hostname": HOSTNAME,
        "dsmode": word("local", "net", "disabled", "pass"),
        "public-keys": SSH_KEYS,
        "network-interfaces": Told("deprecated", "network-interfaces is of version 1", "network-config"),
        "vendor-data": UNCHECKED,
    }
)

_COMMENT = re.compile(r":\s+(?P<value>\$(?:6|5|y|gy|2[aby])\$[^\s'\"]*|(?:ssh|ecdsa)-[a-z0-9-]+ \S+)\s+#")


def _comments(report: Report, text: str) -> None:
    """A hash or key without quotes, behind which something was taken for a comment."""
    for number, line in enumerate(text.split("\n"), 1):
        if match := _COMMENT.search(line):
            found = f"what follows {match['value'][:12]}… is a comment"
            fault = Fault(report.document.file, number, found, "put the value in single quotes")
            report.findings.append(Finding(fault, "yaml-comment"))
