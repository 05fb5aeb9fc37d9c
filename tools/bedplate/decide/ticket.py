"""The text of a ticket about a node: what a person at the machine, or its vendor, has to know. Pure."""

from collections.abc import Sequence

from bedplate.decide.fold import World
from bedplate.decide.slurmnodes import SlurmNode
from bedplate.model.event import Event
from bedplate.model.fleet import Fleet
from bedplate_agent.sinks import Result, culprit, rows
from bedplate_agent.verdict import Finding

EVENTS = 20  # the last ones about the node
BACK = """\
After the repair: `bedplate node return {name}` makes every check, the loading ones too, verifies it against its lock,
and gives it back. A spare meanwhile: `bedplate node replace {name} SPARE --approved-by WHO`."""


def head(result: Result) -> Finding | None:
    return culprit(result.findings)


def title(name: str, result: Result) -> str:
    named = head(result)
    if named is None:
        return f"{name}: its checks find nothing"
    return f"{name}: {named.check}{f' {named.entity}' if named.entity else ''}: {named.message}"


def ticket(
    fleet: Fleet, world: World, name: str, result: Result, *, slurm: SlurmNode | None,
    events: Sequence[tuple[str, str]], note: str, bundle: str,
) -> str:  # fmt: skip
    """Markdown. events: (time and kind, what it says), oldest first; bundle: the name of the file with the evidence."""
    node = fleet.nodes[name]
    named = head(result)
    state = world.state(name)
    runs = world.names.get(state.runs or "", "none that the ledger knows")
    action = (named.action or "find out") if named else "nothing"
    lines = [
        f"# {title(name, result)}",
        "",
        f"- machine: serial {node.serial}, rack {node.rack}, position {node.position}",
        f"- model: {fleet.kinds[node.kind].model}; address {node.address}, BMC {node.bmc_address or 'none'}",
        f"- verdict: {result.verdict} at {result.at or 'no time: it did not answer'}, run {result.run}",
        f"- boot: {result.boot_id or 'not known'}",
        f"- asked for: {action}{f': {named.remedy}' if named and named.remedy else ''}",
        f"- environment: {runs}, {state.status}",
        f"- Slurm: {f'{slurm.state}: {slurm.reason or "no reason"}' if slurm else 'not known there'}",
        f"- evidence: {bundle} (what every probe said; `bedplate health --replay` judges it without the node)",
    ]
    if note:
        lines += ["", note]
    lines += ["", "## Findings", ""]
    found = rows([result])
    lines += [f"- {verdict} {check}{f' {part}' if part else ''}: {what}{f' [{action}]' if action else ''}"
              for verdict, _, check, part, what, action in found] or ["- none"]  # fmt: skip
    lines += ["", "## What the ledger has of it", ""]
    lines += [f"- {when}: {what}" if what else f"- {when}" for when, what in events[-EVENTS:]] or ["- nothing"]
    lines += ["", "## Back", "", BACK.format(name=name), ""]
    return "\n".join(lines)


def about(event: Event, said: str) -> tuple[str, str]:
    return f"{event.at[:19]}Z {event.kind}", said
