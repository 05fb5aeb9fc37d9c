"""Every file system is mounted, answers, and has room."""

from __future__ import annotations

from collections.abc import Iterator

from bedplate_agent.check import Check, all_or, bad, held
from bedplate_agent.facts import Facts
from bedplate_agent.probe import ABANDONED, DONE, LATE
from bedplate_agent.profile import Profile
from bedplate_agent.verdict import CONFIG, NETWORK, REBOOT, Finding


def judge(facts: Facts, profile: Profile) -> Iterator[Finding]:
    paths, read_only = profile.words("host.mounts"), profile.words("host.mounts_read_only")

    def problems() -> Iterator[Finding]:
        for path in paths:
            raw = facts.raw(f"mount:{path}")
            if raw.state in (LATE, ABANDONED):
                yield bad(path, "does not answer: its server or device is gone", value=raw.state)
                continue
            if raw.state == DONE and raw.code:
                yield bad(path, f"cannot be read: {' '.join(raw.err.split())[:120]}", value=raw.code)
                continue
            found = facts[f"mount:{path}"]
            if not found.mounted:
                yield bad(path, "nothing is mounted there", value="no mount", action=CONFIG)
                continue
            if not found.writable and path not in read_only:
                yield bad(path, "is read-only", value="read-only", limit="writable", action=REBOOT)
            yield from held(profile, "host.space", found.used_percent, path, "space used:")
            yield from held(profile, "host.inodes", found.inodes_percent, path, "inodes used:")

    yield from all_or(problems(), f"{len(paths)} file systems answer and have room", value=len(paths))


CHECK = Check(
    "host.mounts", judge, ("mount:",), ("host.mounts", "host.mounts_read_only", "host.space", "host.inodes"),
    "health profile: host.mounts, limits host.space, host.inodes", NETWORK,
    "look at the file server, then mount it again",
)  # fmt: skip
