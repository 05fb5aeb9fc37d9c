#!/usr/bin/python
"""Exactly these packages in one transaction, held whatever happens; or whether that would be possible."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import tempfile
from typing import TYPE_CHECKING, Any

from ansible.module_utils.basic import AnsibleModule

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator

DOCUMENTATION = r"""
module: bedplate_packages
short_description: Exact versions in one transaction, nothing besides, and held afterwards
description:
  - Every transaction is simulated first. One that would install, remove or change anything but the packages named
    here, those that the node's pins name, and other members of I(families) is refused, with the difference.
  - So a downgrade is allowed for the packages of the lock and for nothing else, although apt-get knows only "all".
  - Holds are let go for the transaction and put back at its end, also when it fails.
  - Members of I(families) that the lock does not know are purged in the same transaction, also those that an earlier
    one left unpacked.
  - C(state=possible) asks apt in a root of its own, with the lock's source and pins and the node's real dpkg
    status, what the transaction would do; nothing of the node changes.
options:
  wanted:
    description: What to install.
    type: list
    elements: dict
    required: true
    suboptions:
      name: {description: Name., type: str, required: true}
      version: {description: Debian version., type: str, required: true}
  families: {description: Regular expressions of names., type: list, elements: str, default: []}
  known: {description: Names that the lock has in whatever layer; not purged., type: list, elements: str, default: []}
  also_held:
    description: Regular expressions; installed packages of these names are held too, be they of the lock or not.
    type: list
    elements: str
    default: []
  start_services:
    description: Whether maintainer scripts may start services; no puts a policy-rc.d 101 in place meanwhile.
    type: bool
    default: true
  state: {description: Do it, or ask., type: str, choices: [installed, possible], default: installed}
  source: {description: url, suite, components and key of the archive; for possible., type: dict}
  pins: {description: Where the node's pins are., type: path, default: /etc/apt/preferences.d/bedplate.pref}
  cache: {description: Where the root of its own lies., type: path, default: /var/cache/bedplate/apt}
  lock_timeout_s: {description: How long to wait for dpkg's lock., type: int, default: 300}
author: [Bedplate]
"""

EXAMPLES = r"""
- name: Install the driver
  bedplate_packages:
    wanted: [{name: nvidia-driver-580-open, version: 580.126.20-1ubuntu1}]
    families: [nvidia-driver-.*]
"""

RETURN = r"""
missing: {description: NAME=VERSION that were not installed., returned: always, type: list}
purged: {description: Names of families' members that the lock does not know., returned: always, type: list}
unheld: {description: Names that were not held., returned: always, type: list}
"""

QUERY = ["dpkg-query", "-W", r"-f=${binary:Package} ${Version} ${db:Status-Want} ${db:Status-Status}\n"]
GONE = ("not-installed", "config-files")  # the other states, dpkg(1): files of the package are there
POLICY = "/usr/sbin/policy-rc.d"
INTERRUPTED = "/var/lib/dpkg/updates"
LINES_SHOWN = 15


class Refused(Exception):
    """The transaction would do what nobody asked for, or apt cannot do it."""


def run(argv: list[str], **more: str) -> subprocess.CompletedProcess[str]:
    # ARCH: DKMS takes it for the kernel's architecture. needrestart would restart services without asking.
    environment = {key: value for key, value in os.environ.items() if key != "ARCH"}
    environment |= {"LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive", "NEEDRESTART_SUSPEND": "1", **more}
    environment["PATH"] = environment.get("PATH", "") + ":/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin"
    return subprocess.run(
        argv, check=False, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL, env=environment
    )


def said(done: subprocess.CompletedProcess[str]) -> str:
    lines = [line.rstrip() for line in (done.stdout + "\n" + done.stderr).splitlines() if line.strip()]
    errors = [line for line in lines if line[:2] == "E:"]
    return "\n".join([*(line for line in lines if line not in errors)][-LINES_SHOWN:] + errors)


def installed() -> tuple[dict[str, str], dict[str, str], set[str]]:
    """Versions of the installed packages, states of those that a transaction left in between, names of the held."""
    done = run(QUERY)
    if done.returncode:
        raise Refused(f"dpkg-query ended with {done.returncode}: {said(done)}")
    have, between, held = {}, {}, set()
    for line in done.stdout.splitlines():
        name, version, want, status = line.split()
        name = name.partition(":")[0]
        if status in GONE:
            continue
        if want == "hold":
            held.add(name)
        if status == "installed":
            have[name] = version
        else:
            between[name] = f"{version} {status}"
    return have, between, held


def pinned(path: str) -> dict[str, str]:
    """The versions that the node's pins name."""
    try:
        with open(path) as handle:
            text = handle.read()
    except FileNotFoundError:
        return {}
    return dict(re.findall(r"^Package: (\S+)\nPin: version (\S+)$", text, re.MULTILINE))


def matches(patterns: list[str], name: str) -> bool:
    return any(re.fullmatch(pattern, name) for pattern in patterns)


def superseded(module: AnsibleModule, there: Iterable[str], known: Container[str]) -> list[str]:
    """Members of the families that the lock does not know; there: packages in any state but gone.

    A transaction that failed half way leaves unpacked ones, and those conflict as installed ones do.
    """
    return sorted(name for name in there if name not in known and matches(module.params["families"], name))


def transaction(wanted: dict[str, str], purged: list[str], timeout_s: int, *more: str) -> list[str]:
    return [
        "apt-get", "-y", "-q", "--no-install-recommends", "--allow-downgrades", "--allow-change-held-packages",
        "-o", "Dpkg::Options::=--force-confdef", "-o", "Dpkg::Options::=--force-confold", "-o", "Dpkg::Use-Pty=0",
        "-o", f"DPkg::Lock::Timeout={timeout_s}", *(["--purge"] if purged else []), *more, "install",
        *(f"{name}={version}" for name, version in wanted.items()), *(f"{name}-" for name in purged),
    ]  # fmt: skip


def refuse_other_changes(
    done: subprocess.CompletedProcess[str], allowed: dict[str, str], purged: list[str], have: dict[str, str]
) -> None:
    """Refuse a simulated transaction that touches what is not of the lock; done: apt-get -s."""
    if done.returncode:
        raise Refused(f"apt finds no way to install what the lock says:\n{said(done)}")
    other = []
    for word, new in re.findall(r"^Inst (\S+) (?:\[[^]]*\] )?\((\S+) ", done.stdout, re.MULTILINE):
        name = word.partition(":")[0]
        if allowed.get(name) != new:
            lock = f"the lock says {allowed[name]}" if name in allowed else "not in the lock"
            other.append(f"{name} {have.get(name, 'absent')} -> {new} ({lock})")
    for word in re.findall(r"^(?:Remv|Purg) (\S+)", done.stdout, re.MULTILINE):
        name = word.partition(":")[0]
        if name not in purged and not any(line.startswith(f"{name} ") for line in other):
            other.append(f"{name} {have.get(name, '?')} -> removed (not in the lock)")
    if other:
        raise Refused("apt would change what is not of the lock:\n" + "\n".join(f"  {line}" for line in other))


@contextlib.contextmanager
def no_service_starts() -> Iterator[None]:
    """policy-rc.d 101 (Debian: invoke-rc.d does nothing), and what was there before afterwards."""
    aside = f"{POLICY}.bedplate"
    if os.path.lexists(POLICY) and not os.path.lexists(aside):
        os.rename(POLICY, aside)
    with open(POLICY, "w") as handle:
        handle.write(
            "#!/bin/sh\n# Bedplate: services wait until they are configured; gone after this transaction.\nexit 101\n"
        )
    os.chmod(POLICY, 0o755)  # noqa: S103  it is a program
    try:
        yield
    finally:
        os.unlink(POLICY)
        if os.path.lexists(aside):
            os.rename(aside, POLICY)


def change(
    module: AnsibleModule, wanted: dict[str, str], purged: list[str], held: set[str], have: dict[str, str]
) -> None:
    """Do the transaction; the holds that were there are there afterwards, whatever happens."""
    timeout_s = module.params["lock_timeout_s"]
    if os.path.isdir(INTERRUPTED) and os.listdir(INTERRUPTED):  # power went while dpkg worked
        run(["dpkg", "--configure", "-a", "--force-confdef", "--force-confold"])
    if purged and held & set(purged):
        # apt does not remove a held package, not even for one that conflicts with it.
        run(["apt-mark", "unhold", *sorted(held & set(purged))])
    try:
        allowed = pinned(module.params["pins"]) | wanted
        refuse_other_changes(run(transaction(wanted, purged, timeout_s, "-s")), allowed, purged, have)
        with contextlib.nullcontext() if module.params["start_services"] else no_service_starts():
            done = run(transaction(wanted, purged, timeout_s))
        if done.returncode:
            raise Refused(f"apt-get ended with {done.returncode}:\n{said(done)}")
    finally:
        there, between, now = installed()
        lost = sorted((held & (there.keys() | between.keys())) - now)
        if lost:
            hold(lost)


def hold(names: list[str]) -> None:
    done = run(["apt-mark", "hold", *names])
    if done.returncode:
        raise Refused(f"apt-mark hold ended with {done.returncode}: {said(done)}")


def install(module: AnsibleModule) -> dict[str, Any]:
    wanted = {item["name"]: item["version"] for item in module.params["wanted"]}
    known = wanted.keys() | set(module.params["known"])
    have, between, held = installed()
    missing = [f"{name}={version}" for name, version in wanted.items() if have.get(name) != version]
    purged = superseded(module, have | between, known)
    also = {name for name in have if name not in purged and matches(module.params["also_held"], name)}
    unheld = sorted((wanted.keys() | also) - held)
    result = {"changed": bool(missing or purged or unheld), "missing": missing, "purged": purged, "unheld": unheld}
    touched = sorted({*(word.partition("=")[0] for word in missing), *purged, *unheld})
    if touched:
        result["diff"] = {
            "before_header": "packages", "after_header": "packages",
            "before": "".join(f"{n}={have[n]}{' held' * (n in held)}\n" for n in touched if n in have),
            "after": "".join(f"{n}={wanted.get(n, have.get(n))} held\n" for n in touched if n not in purged),
        }  # fmt: skip
    if module.check_mode or not result["changed"]:
        return result
    if missing or purged:
        change(module, wanted, purged, held, have | between)
    there, between, now = installed()
    wrong = [f"{name} is {there.get(name, 'absent')}" for name, version in wanted.items() if there.get(name) != version]
    left = [name for name in purged if name in there | between]
    if wrong or left:
        raise Refused(f"after the transaction {'; '.join([*wrong, *(f'{name} is still there' for name in left)])}")
    loose = sorted((wanted.keys() | (also & there.keys())) - now)
    if loose:
        hold(loose)
    return result


APT_CONF = """\
Dir::Etc "{root}/etc"; Dir::Etc::main "/dev/null"; Dir::Etc::parts "/dev/null";
Dir::Etc::sourcelist "{root}/etc/archive.sources"; Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferences "{root}/etc/preferences"; Dir::Etc::preferencesparts "/dev/null";
Dir::Etc::trusted "/dev/null"; Dir::Etc::trustedparts "/dev/null";
Dir::State "{root}/state"; Dir::State::lists "{root}/state/lists"; Dir::State::status "/var/lib/dpkg/status";
Dir::Cache "{root}/cache"; Dir::Log "{root}/log";
APT::Sandbox::User "root"; Acquire::Languages "none"; Acquire::http::Timeout "15"; Acquire::Retries "1";
Acquire::AllowInsecureRepositories "false"; APT::Get::AllowUnauthenticated "false"; Debug::NoLocking "1";
"""


def furnish(root: str, source: dict[str, Any], pins: dict[str, str]) -> str:
    """A root of apt's own: the lock's source, key and pins; the node's dpkg status. The path of its configuration."""
    for name in ("etc", "state/lists/partial", "cache/archives/partial", "log"):
        os.makedirs(f"{root}/{name}", exist_ok=True)
    components = f"Components: {' '.join(source['components'])}\n" if source["components"] else ""
    texts = {
        "etc/key.asc": source["key"],
        "etc/archive.sources": f"Types: deb\nURIs: {source['url']}\nSuites: {source['suite']}\n{components}"
        f"Signed-By: {root}/etc/key.asc\n",
        "etc/preferences": "\n".join(
            f"Package: {name}\nPin: version {version}\nPin-Priority: 1001\n" for name, version in pins.items()
        ),
        "apt.conf": APT_CONF.format(root=root),
    }
    for name, text in texts.items():
        with open(f"{root}/{name}", "w") as handle:
            handle.write(text)
    return f"{root}/apt.conf"


def possible(module: AnsibleModule) -> dict[str, Any]:
    wanted = {item["name"]: item["version"] for item in module.params["wanted"]}
    have, between, _ = installed()
    missing = [f"{name}={version}" for name, version in wanted.items() if have.get(name) != version]
    purged = superseded(module, have | between, wanted)
    result = {"changed": False, "missing": missing, "purged": purged, "unheld": []}
    root = module.params["cache"]
    if module.check_mode:
        root = tempfile.mkdtemp(prefix="bedplate-apt-")
    try:
        configuration = furnish(root, module.params["source"], wanted)
        updated = run(["apt-get", "-q", "update", "-o", "APT::Update::Error-Mode=any"], APT_CONFIG=configuration)
        if updated.returncode:
            raise Refused(f"the archive's index cannot be read from this node:\n{said(updated)}")
        done = run(transaction(wanted, purged, 0, "-s"), APT_CONFIG=configuration)
        try:
            refuse_other_changes(done, wanted, purged, have | between)
        except Refused as fault:
            raise Refused(f"{fault}{there_is(done, configuration)}") from None
    finally:
        if module.check_mode:
            shutil.rmtree(root)
    return result


def there_is(done: subprocess.CompletedProcess[str], configuration: str) -> str:
    """Which versions the archive has of those that apt did not find."""
    absent = re.findall(r"Version '[^']+' for '([^']+)' was not found", done.stderr)
    absent += re.findall(r"Unable to locate package (\S+)", done.stderr)
    lines = []
    for name in absent:
        listed = run(["apt-cache", "madison", name], APT_CONFIG=configuration).stdout
        versions = [line.split("|")[1].strip() for line in listed.splitlines() if line.count("|") > 1]
        lines.append(f"\n  the archive has of {name}: {', '.join(versions) or 'nothing'}")
    return "".join(lines)


def main() -> None:
    names = {"type": "list", "elements": "str", "default": []}
    package = {"name": {"type": "str", "required": True}, "version": {"type": "str", "required": True}}
    module = AnsibleModule(
        {
            "wanted": {"type": "list", "elements": "dict", "required": True, "options": package},
            "families": names, "known": names, "also_held": names,
            "start_services": {"type": "bool", "default": True},
            "state": {"type": "str", "choices": ["installed", "possible"], "default": "installed"},
            "source": {"type": "dict", "options": {
                "url": {"type": "str", "required": True}, "suite": {"type": "str", "required": True},
                "components": {"type": "list", "elements": "str", "default": []},
                "key": {"type": "str", "required": True, "no_log": False},
            }},
            "pins": {"type": "path", "default": "/etc/apt/preferences.d/bedplate.pref"},
            "cache": {"type": "path", "default": "/var/cache/bedplate/apt"},
            "lock_timeout_s": {"type": "int", "default": 300},
        },
        required_if=[("state", "possible", ["source"])], supports_check_mode=True,
    )  # fmt: skip
    try:
        module.exit_json(**(possible(module) if module.params["state"] == "possible" else install(module)))
    except Refused as fault:
        module.fail_json(msg=str(fault))


if __name__ == "__main__":
    main()
