"""`bedplate autoinstall`: is a seed, or a boot file, one that an installer does with what its writer meant?"""

from pathlib import Path

import click

from bedplate import process
from bedplate.cli.output import json_option, print_json
from bedplate.decide.autoinstall.findings import RELEASES, Finding, Release, Script
from bedplate.decide.autoinstall.lint import SEED_FILES, Kind, Linted, accepted, lint, lint_seed
from bedplate.decide.autoinstall.rules import RULES
from bedplate.model.faults import BadInput, Fault
from bedplate.sources.site import shown

_IN_SEED = (*SEED_FILES, "network-config")
SHELL_DEADLINE_S = 60.0


@click.group()
def autoinstall() -> None:
    """Files that install machines."""


@autoinstall.command("lint")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--kind", type=click.Choice([kind.value for kind in Kind]), help="What each file is; default: by name.")
@click.option("--release", type=click.Choice(RELEASES), default="24.04", show_default=True, help="Whose installer.")
@click.option("--accept", metavar="RULE", multiple=True, help="Accept a rule that is a matter of policy.")
@json_option
def lint_command(
    files: tuple[Path, ...], kind: str | None, release: Release, accept: tuple[str, ...], *, as_json: bool
) -> int:
    """Find what an installer would accept in silence.

    Stricter than the installer's own schema: typos at every level, disks that are not identified, secrets, commands
    that no shell can read, values that YAML turns into others. FILE is user-data, autoinstall.yaml, meta-data,
    vendor-data, network-config, a GRUB or iPXE file, or the directory of a seed. The rules: docs/autoinstall-lint.md.

    \b
    Example:
      bedplate autoinstall lint user-data
      bedplate autoinstall lint --accept kernel-pin seeds/gpu001 grub.cfg
    """
    for name in accept:
        if name not in RULES:
            raise BadInput(f"--accept {name}: no such rule (docs/autoinstall-lint.md has them)")
        if not RULES[name].policy:
            raise BadInput(f"--accept {name}: this rule is no matter of policy: correct the file")
    chosen = Kind(kind) if kind else None
    findings: list[Finding] = []
    kinds: dict[str, str] = {}
    shells: dict[tuple[str, str], str] = {}
    for path in _opened(files, findings):
        found = lint(_bytes(path), shown(path), kind=chosen, release=release)
        kinds[shown(path)] = found.kind.value
        findings += [*found.findings, *_syntax(found, shells)]
    left = sorted(set(accepted(findings, accept)))
    dropped = len(set(findings)) - len(left)
    if as_json:
        print_json(
            {
                "files": kinds,
                "findings": [finding.fault.as_dict() | {"rule": finding.rule} for finding in left],
                "accepted": dropped,
            }
        )
    else:
        for finding in left:
            click.echo(str(finding), err=True)
        said = f"{len(left)} fault{'s' if len(left) != 1 else ''} in {len(kinds)} file{'s' if len(kinds) != 1 else ''}"
        click.echo(said + (f", {dropped} accepted" if dropped else ""), err=bool(left))
    return BadInput.exit_code if left else 0


def _opened(files: tuple[Path, ...], findings: list[Finding]) -> list[Path]:
    """The files that are named, and those of seeds whose directories are named.

    Raises:
        BadInput: one is not there.
    """
    missing = [Fault(shown(path.absolute()), None, "no such file") for path in files if not path.exists()]
    if missing:
        raise BadInput(missing)
    opened: list[Path] = []
    for path in (path.absolute() for path in files):
        if not path.is_dir():
            opened.append(path)
            continue
        there = [name for name in _IN_SEED if (path / name).is_file()]
        findings += lint_seed(there, shown(path))
        opened += [path / name for name in there]
    return opened


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as fault:
        raise BadInput([Fault(shown(path), None, f"cannot be read: {fault.strerror}")]) from fault


def _syntax(found: Linted, known: dict[tuple[str, str], str]) -> list[Finding]:
    """What the shells say of a file's commands; they read them and run nothing."""
    findings = []
    for script in found.scripts:
        key = (script.shell, script.text)
        if key not in known:
            known[key] = _said(script)
        if known[key]:
            findings.append(script.finding(known[key]))
    return findings


def _said(script: Script) -> str:
    # From standard input: a command may be longer than an argument, and may begin with a hyphen.
    done = process.run([script.shell, "-n"], check=False, stdin=script.text, timeout_s=SHELL_DEADLINE_S)
    return (done.err or "syntax error") if done.code else ""
