"""Docker's command speaks an API that its engine still takes.

Engines of 29.0 to 29.3 take 1.44 and later, which is what clients speak from 25.0 on; 29.4 takes 1.40 again.
"""

from collections.abc import Iterator

from bedplate.decide.rule import Finding, Rule, fault
from bedplate.decide.subject import Subject
from bedplate.model.layers import Layer
from bedplate.model.versions import at_least

STRICT, LENIENT = "29.0", "29.4"
CLIENT = "25.0"
PAIRS = {"docker-ce": "docker-ce-cli", "moby-engine": "moby-cli"}


def _check(subject: Subject) -> Iterator[Finding]:
    for engine_name, client_name in PAIRS.items():
        engine, client = subject.packages.get(engine_name), subject.packages.get(client_name)
        if engine is None or client is None or at_least(client.version, CLIENT):
            continue
        if at_least(engine.version, STRICT) and not at_least(engine.version, LENIENT):
            yield fault(
                client, f"{client} speaks an API before 1.44, {engine} takes 1.44 and later",
                f"ask for {client_name} at {engine.version}",
            )  # fmt: skip


RULE = Rule(
    id="DOCKER-API",
    title="Docker's command speaks an API that its engine takes",
    layers=(Layer.CONTAINER,),
    source="moby/moby#51186 (29.0: 1.44 at least, the API of 25.0); wagoodman/dive#664: client version 1.43 is too old",
    check=_check,
)
