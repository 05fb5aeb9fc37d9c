"""Events as a ledger would hold them, told in a few words, for tests of what is folded from them."""

from typing import Any

from bedplate.model.event import GENESIS, Draft, Event, body_bytes, seal

A, B = "sha256:" + "a" * 64, "sha256:" + "b" * 64
NAMES = {A: "A", B: "B"}


class Story:
    """A chain of events; each call adds one, a second after the one before."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def tell(self, kind: str, subjects: tuple[str, ...], environment: str | None, body: dict[str, Any]) -> Event:
        number = len(self.events) + 1
        draft = Draft(kind, subjects, body, environment)
        event = seal(
            draft, body_bytes(body), id=number, actor="maria@ctl",
            at=f"2026-11-02T09:{number // 60 % 60:02d}:{number % 60:02d}.000000Z",
            previous=self.events[-1].sha256 if self.events else GENESIS,
        )  # fmt: skip
        self.events.append(event)
        return event

    def resolved(self, environment: str) -> "Story":
        name = NAMES[environment]
        self.tell("lock.resolved", (f"environment:{name}",), environment, {"environment": name})
        return self

    def started(self, number: int, environment: str, /, **body: Any) -> "Story":
        self._of(number, "rollout.started", environment, (), {"environment": NAMES[environment], **body})
        return self

    def of(self, number: int, kind: str, environment: str, /, *nodes: str, **body: Any) -> "Story":
        self._of(number, kind, environment, nodes, body)
        return self

    def verified(self, node: str, environment: str, verdict: str = "PASS", /, **body: Any) -> "Story":
        """A verification outside a rollout."""
        found = {"verdict": verdict, "facts": {}, "why": ""} | body
        self.tell("node.verified", (f"node:{node}",), environment, found)
        return self

    def changed(self, number: int, environment: str, *nodes: str, **facts: str) -> "Story":
        """A rollout from its start to its end, in which all goes well."""
        self.started(number, environment).of(number, "batch.admitted", environment, *nodes, batch=0, name="rest")
        for node in nodes:
            self.of(number, "node.verified", environment, node, verdict="PASS", facts=facts, why="")
            self.of(number, "node.done", environment, node, manifest_sha256=environment)
        return self.of(number, "rollout.ended", environment)

    def _of(self, number: int, kind: str, environment: str, nodes: tuple[str, ...], body: dict[str, Any]) -> None:
        subjects = (f"rollout:{number}", f"environment:{NAMES[environment]}", *(f"node:{n}" for n in nodes))
        self.tell(kind, subjects, environment, body)
