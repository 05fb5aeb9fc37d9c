"""No task has hung in the kernel, and memory has not run out."""

from __future__ import annotations

from collections.abc import Iterator

from bedplate_agent.check import Check, all_or, bad, kernel_log
from bedplate_agent.facts import Facts
from bedplate_agent.profile import Profile
from bedplate_agent.verdict import CONFIG, WARN, WATCH, Finding


def judge(facts: Facts, profile: Profile) -> Iterator[Finding]:
    messages = [m.text for m in kernel_log(facts, profile).messages]
    hung = [text for text in messages if "blocked for more than" in text]
    killed = [text for text in messages if "ut of memory" in text and "Memory cgroup" not in text]

    def problems() -> Iterator[Finding]:
        if hung:
            yield bad("", f"{len(hung)} hung tasks, first: {hung[0][:100]}", verdict=WARN, value=len(hung), limit=0)
        if killed:
            message = f"the node ran out of memory: {killed[0][:100]}"
            yield bad("", message, verdict=WARN, value=len(killed), limit=0, action=CONFIG)

    yield from all_or(problems(), "no hung task, no lack of memory")


CHECK = Check("kernel.stalls", judge, ("journal",), (), "kernel: hung_task_timeout_secs, out of memory", WATCH)
