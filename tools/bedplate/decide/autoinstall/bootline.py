"""The command lines of kernels in GRUB and iPXE files: what the installer has to find there."""

import re
import shlex

from bedplate.decide.autoinstall.findings import Finding, Report
from bedplate.model.faults import Fault

COMMAND_LINE_BYTES = 2047  # COMMAND_LINE_SIZE of Linux on x86 is 2048 with the NUL
_GRUB = re.compile(r"\s*(linux|linuxefi|linux16)\s")
_IPXE = re.compile(r"\s*(kernel|imgargs|chain|boot)\s")
_INSTALLER = re.compile(r"\bautoinstall\b|\bds=nocloud|(?:^|\s)(?:iso-)?url=|\bsubiquity\.")
_SEED = re.compile(r"ds=nocloud(?:-net)?;(?:[^;\s]*;)*?s(?:eedfrom)?=([^;\s]*)")


def check_boot(report: Report, text: str, kind: str) -> None:
    """Check each line that starts an installer; other lines are none of the lint's business."""
    for number, line in _joined(text):
        if not (_IPXE if kind == "ipxe" else _GRUB).match(line) or not _INSTALLER.search(line):
            continue
        for rule, found, remedy in _line(line, kind):
            report.findings.append(Finding(Fault(report.document.file, number, found, remedy), rule))


def _joined(text: str) -> list[tuple[int, str]]:
    """Lines with their numbers; a backslash at the end joins the next one."""
    lines: list[tuple[int, str]] = []
    number, begun = 1, ""
    for at, line in enumerate(text.split("\n"), 1):
        number = number if begun else at
        if line.endswith("\\"):
            begun += line[:-1] + " "
            continue
        lines.append((number, begun + line))
        begun = ""
    return [*lines, (number, begun)] if begun else lines


def _words(line: str, kind: str) -> tuple[list[str], bool]:
    """The words that reach the kernel, and whether GRUB cut the line at a `;`."""
    if kind == "ipxe":
        return line.partition("||")[0].split(), False
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";")
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        words = list(lexer)
    except ValueError:
        return line.split(), False
    at = next((index for index, word in enumerate(words) if word and set(word) == {";"}), None)
    return (words, False) if at is None else (words[:at], words[at - 1].startswith("ds=") if at else False)


def _line(line: str, kind: str) -> list[tuple[str, str, str]]:
    words, cut = _words(line, kind)
    arguments = " ".join(words[2:])
    found: list[tuple[str, str, str]] = []
    if cut:
        found.append(("boot-semicolon", "the command line ends at the `;` of ds=", 'write "ds=nocloud;s=…" in quotes'))
        arguments = " ".join(re.split(r"[\s\"']+", line.replace("\\;", ";"))[2:])
    given = set(arguments.split())
    if "autoinstall" not in given:
        found.append(("boot-autoinstall", "no `autoinstall` on the command line", "add it"))
    seed = _SEED.search(arguments)
    if seed is None:
        found.append(("boot-seed", "no ds=nocloud;s=URL on the command line", "add it"))
    elif not seed[1].endswith("/"):
        found.append(("boot-seed-slash", f'the seed\'s URL "{seed[1][:120]}" does not end with /', "add it"))
    found += [
        ("rewritten", f"{each[:120]} comes before the seed", "remove it")
        for each in sorted(given)
        if each.startswith("subiquity.autoinstallpath=")
    ]
    fetches = any(word.startswith(("url=", "iso-url=")) for word in given)
    if any(word.startswith("url=") for word in given) and "cloud-config-url=/dev/null" not in given:
        found.append(("boot-url", "url= without cloud-config-url=/dev/null", "add it"))
    if fetches and not any(word.startswith("ip=") for word in given):
        found.append(("boot-ip", "url= without ip=dhcp", "add it"))
    if kind == "ipxe" and not any(word.startswith("initrd=") for word in given):
        found.append(("boot-initrd", "no initrd=NAME on the command line", "add it, with the name of the initrd"))
    if not any(word.startswith("BOOTIF=") for word in given):
        found.append(("boot-interface", "no BOOTIF= on the command line", "BOOTIF=01-${netX/mac:hexhyp} in iPXE"))
    if len(arguments.encode()) > COMMAND_LINE_BYTES:
        found.append(("size", f"{len(arguments.encode())} bytes, a kernel takes {COMMAND_LINE_BYTES}", "shorten it"))
    return found
