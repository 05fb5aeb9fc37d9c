"""The main job on a lab fleet, told with the very commands that a user would type.

    python -m lab.demo [--nodes N] [--down]

`tools/demo` runs it after tools/setup. tests/lab/test_demo.py runs the same steps and asserts what they leave.
"""

import json
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

import click

from bedplate.model.faults import BedplateError
from bedplate.model.nodes import fold as fold_names
from lab.lifecycle import down, status, up
from lab.places import CONTROLLER, MAX_NODES, SERVICES_HOST, places
from lab.run import inside, on
from lab.steps import Steps

ENVIRONMENTS = ("A", "B")
SERVICES_ENVIRONMENT = "S"  # Slurm's controllers: before the nodes that they serve
FAULT = "bad-upgrade"
STORY = ("lock", "rollout", "batch", "node.failed", "node.done")  # and not each step of each node
LEFT = """The lab is left as it is:
  .venv/bin/bedplate lab status
  .venv/bin/bedplate lab shell                # the controller host: bedplate status, bedplate ledger log
  .venv/bin/bedplate lab down                 # or tools/demo again: it begins with a fresh lab"""
DIFFERENCES, NODE_FAILED = 5, 4  # exit codes, see docs/commands.md


class DemoFailed(BedplateError):
    """A command ended otherwise than the story needs."""


@dataclass
class Told:
    """What the demo did, for its last lines."""

    nodes: list[str] = field(default_factory=list)
    batches: int = 0
    rollouts: int = 0
    failures: list[str] = field(default_factory=list)
    equal: dict[str, bool] = field(default_factory=dict)


class Demo:
    """The story, a step at a time; each step can be run by a test on its own."""

    def __init__(self, nodes: int, echo: Callable[[str], None] = click.echo) -> None:
        self.count = nodes
        self.echo = echo
        self.told = Told()
        self._began = time.monotonic()

    # --- telling -----------------------------------------------------------------------------------

    def say(self, text: str) -> None:
        self.echo(text)
        sys.stdout.flush()

    def chapter(self, number: int, title: str) -> None:
        self.say(f"\n=== {number}. {title}  [{time.monotonic() - self._began:.0f} s]")

    def ctl(self, *command: str, ends: Collection[int] = (0,)) -> int:
        """Type a command on the controller host; its output is shown as it comes."""
        self.say(f"\nctl$ {shlex.join(command)}")
        code = subprocess.call(inside(CONTROLLER).argv(command), stdin=subprocess.DEVNULL)  # output streams
        if code not in ends:
            raise DemoFailed(f"`{shlex.join(command)}` ended with {code}, the story needs {sorted(ends)}")
        if code:
            self.say(f"(exit code {code})")
        return code

    def ask(self, *command: str) -> Any:
        """The JSON that a command prints."""
        return json.loads(on(CONTROLLER, [*command, "--json"]).out)

    # --- the steps ---------------------------------------------------------------------------------

    def lab(self) -> None:
        self.chapter(2, "The lab: archive, registry, a controller host and nodes")
        self.say(f"\n# bedplate lab up --nodes {self.count} --fresh")
        up(places(), Steps(self.say), nodes=self.count, fresh=True)
        self.told.nodes = sorted(
            n for n in self.ask("bedplate", "status")["nodes"] if n not in (CONTROLLER, SERVICES_HOST)
        )

    def images(self) -> None:
        self.chapter(3, "The image of each environment: built, pushed, imported, with a build record")
        for name in ENVIRONMENTS:
            for verb in ("build", "push", "import"):
                self.ctl("bedplate", "image", verb, name)
            self.ctl("bedplate", "image", "show", name)

    def locks(self) -> None:
        self.chapter(4, "Check what is asked for, and lock it to exact bytes")
        self.ctl("bedplate", "check")
        for name in (SERVICES_ENVIRONMENT, *ENVIRONMENTS):
            self.ctl("bedplate", "lock", name)
        self.ctl("bedplate", "check", "--online")
        for name in ENVIRONMENTS:
            self.ctl("bedplate", "image", "place", name)

    def services(self) -> None:
        self.chapter(5, "Slurm's controllers and the accounting database, on the services host")
        self.ctl("bedplate", "rollout", SERVICES_ENVIRONMENT, "--yes")

    def first(self) -> None:
        self.chapter(6, "Environment A on every node: canary, small group, rest")
        self.ctl("bedplate", "rollout", "A", "--yes")

    def upgrade(self) -> None:
        victim = self.victim()
        self.chapter(7, f"Environment B; {victim} is broken on purpose on the way")
        self.say(f"\n# bedplate lab break {victim} {FAULT}")
        self.machine("lab", "break", victim, FAULT)
        self.told.failures.append(f"{victim} ({FAULT})")
        self.ctl("bedplate", "rollout", "B", "--yes", ends=[NODE_FAILED])
        self.say(
            f"\nPolicy allows one bad node: {victim} was left out and named, every other node runs B; and {victim}"
            " was rolled back to A, as B's policy says of a failed node, though its fault is still there."
        )
        self.ctl("bedplate", "status")

    def back(self) -> None:
        victim = self.victim()
        self.chapter(8, "Back to A, and the proof that every node is what it was")
        self.say(f"\n# bedplate lab break {victim} {FAULT} --mend")
        self.machine("lab", "break", victim, FAULT, "--mend")
        self.ctl("bedplate", "rollback", "A", "--yes")
        self.say(f"\n{victim} is no row of that table: it was rolled back before, and compared then.")
        self.told.equal = self.equality()

    def story(self) -> None:
        self.chapter(9, "The story, from the ledger")
        kinds = [word for kind in STORY for word in ("--kind", kind)]
        self.ctl("bedplate", "ledger", "log", *kinds)
        self.ctl("bedplate", "ledger", "verify")
        self.ctl("bedplate", "diff", "A", "B", ends=[DIFFERENCES])
        self.ctl("bedplate", "status")
        kinds = [event["kind"] for event in self.ask("bedplate", "ledger", "log")]
        self.told.batches, self.told.rollouts = kinds.count("batch.admitted"), kinds.count("rollout.started")

    def run(self) -> None:
        before = (self.lab, self.images, self.locks, self.services)
        for step in (*before, self.first, self.upgrade, self.back, self.story, self.prove):
            step()

    # --- what the steps need -----------------------------------------------------------------------

    def victim(self) -> str:
        """A node of a later batch: one bad canary would stop the rollout, which is another story."""
        return self.told.nodes[self.count // 2]

    def machine(self, *command: str) -> None:
        """A command on the machine itself."""
        code = subprocess.call([sys.executable, "-m", "bedplate", *command])
        if code:
            raise DemoFailed(f"`bedplate {shlex.join(command)}` ended with {code}")

    def equality(self) -> dict[str, bool]:
        """Node -> whether packages, files and image are, by hash, what they were under the first A."""
        found: dict[str, list[dict[str, str]]] = {}
        events = self.ask("bedplate", "ledger", "log", "--kind", "node.verified")
        for event in events:
            body = event["body"]
            if body["environment"] == "A" and body["verdict"] == "PASS":
                for subject in event["subjects"]:
                    if subject.startswith("node:"):
                        found.setdefault(subject.removeprefix("node:"), []).append(body["facts"])
        return {node: len(found.get(node, [])) > 1 and found[node][0] == found[node][-1] for node in self.told.nodes}

    def prove(self) -> None:
        wrong = [node for node, same in self.told.equal.items() if not same]
        if wrong or not self.told.equal:
            raise DemoFailed(f"rollback equality does not hold on {fold_names(wrong) or 'any node'}")

    def last_lines(self) -> None:
        told, seconds = self.told, time.monotonic() - self._began
        self.say(
            f"\n{len(told.nodes)} nodes ({fold_names(told.nodes)}), {told.batches} batches in {told.rollouts} rollouts,"
            f" failures injected: {len(told.failures)} ({', '.join(told.failures)}), {seconds:.0f} seconds"
        )
        self.say(
            f"rollback equality held: packages, files and image of {len(told.equal)} of {len(told.nodes)} nodes "
            "equal the first A"
        )


@click.command()
@click.option("--nodes", type=click.IntRange(2, MAX_NODES), default=8, show_default=True, help="Nodes of the lab.")
@click.option("--down", "end", is_flag=True, help="End the lab afterwards.")
def main(nodes: int, end: bool) -> None:
    """Carry a lab fleet from bare hosts to a recorded environment, upgrade it and roll it back."""
    demo = Demo(nodes)
    try:
        demo.run()
        if end:
            down(places(), Steps(demo.say), purge=False)
    except (BedplateError, KeyboardInterrupt) as fault:
        click.echo(f"\ndemo: {fault if isinstance(fault, BedplateError) else 'interrupted'}", err=True)
        if status(places()).state != "down":
            click.echo(LEFT, err=True)
        sys.exit(fault.exit_code if isinstance(fault, BedplateError) else 130)
    if not end:
        demo.say(
            "\nThe lab is still up. Look around:\n"
            "  .venv/bin/bedplate lab shell                # the controller host: bedplate, ansible-playbook, pytest\n"
            "  .venv/bin/bedplate lab shell n1             # a node\n"
            "  .venv/bin/bedplate lab status\n"
            "End it:  .venv/bin/bedplate lab down\n"
        )
    demo.last_lines()


if __name__ == "__main__":
    main()
