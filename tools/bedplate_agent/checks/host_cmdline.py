"""The kernel was started with every word that the environment asks for."""

from __future__ import annotations

from collections.abc import Iterator

from bedplate_agent.check import Check, all_or, bad
from bedplate_agent.facts import Facts
from bedplate_agent.profile import Profile
from bedplate_agent.verdict import REBOOT, Finding


def judge(facts: Facts, profile: Profile) -> Iterator[Finding]:
    words = facts["host"].need("cmdline").split()
    missing = [word for word in profile.words("host.cmdline") if word not in words]
    wrong = (bad("", f"{word} is not on the kernel's command line", value="none", limit=word) for word in missing)
    yield from all_or(wrong, "command line as asked for")


CHECK = Check(
    "host.cmdline", judge, ("host",), ("host.cmdline",), "lock: layer kernel, command_line", REBOOT,
    "apply the environment, then reboot",
)  # fmt: skip
