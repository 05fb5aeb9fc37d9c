"""In a job step, each task that asks for one GPU gets one, and its own."""

from __future__ import annotations

from collections.abc import Iterator

from bedplate_agent.check import Check, all_or, bad
from bedplate_agent.facts import Facts
from bedplate_agent.probe import EXCLUSIVE
from bedplate_agent.profile import Profile
from bedplate_agent.verdict import CONFIG, Finding


def judge(facts: Facts, profile: Profile) -> Iterator[Finding]:
    count, tasks = profile.number("gpu.count"), facts["step"]
    known = {gpu.text("uuid") for gpu in facts["smi"].gpus}

    def problems() -> Iterator[Finding]:
        if len(tasks) != count:
            yield bad("", f"{len(tasks)} tasks ran", value=len(tasks), limit=count)
        for task, seen in sorted(tasks.items()):
            if len(seen) != 1:
                yield bad(f"task{task}", f"sees {len(seen)} GPUs", value=len(seen), limit=1)
        everything = [uuid for seen in tasks.values() for uuid in seen]
        if len(set(everything)) != len(everything):
            yield bad("", "two tasks see one GPU", value=len(everything) - len(set(everything)), limit=0)
        if missing := known - set(everything):
            yield bad("", f"no task got {', '.join(sorted(missing))}", value=len(missing), limit=0)
        if foreign := set(everything) - known:
            yield bad(
                "", f"tasks see GPUs that the node does not have: {', '.join(sorted(foreign))}", value=len(foreign)
            )

    yield from all_or(problems(), f"{count} tasks, a GPU each", value=count)


CHECK = Check(
    "gpu.step", judge, ("step", "smi"), ("gpu.count",), "hardware model: gpus", CONFIG,
    "look at gres.conf, cgroup.conf and the container runtime of the step", klass=EXCLUSIVE,
)  # fmt: skip
