"""Asks nodes how they are: one remote command each, all at once; every node of the fleet ends as one result."""

import base64
import json
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from bedplate.decide.healthexpect import expectation, of_node
from bedplate.decide.healthresult import NoResult, lost, read
from bedplate.model.faults import BadInput
from bedplate.observe.agentfile import parcel
from bedplate.observe.running import running
from bedplate.sources.site import Site
from bedplate.ssh import Answer, Target, run_everywhere
from bedplate_agent import recording
from bedplate_agent.command import DEADLINES_S, judged
from bedplate_agent.judging import chosen
from bedplate_agent.probe import PASSIVE, Raw
from bedplate_agent.registry import every
from bedplate_agent.sinks import Result

WIDTH = 96
LOGIN_S = 40.0  # beyond the agent's own deadline: login, another run that has the node's lock, the way back
# The agent comes on stdin and stays in memory: nothing is written on the node, and no version of it stays behind.
BOOT = """
import gc, importlib.util, marshal, sys, zlib
if sys.version_info < (3, 10): sys.exit("the agent needs Python 3.10, this is %d.%d" % sys.version_info[:2])
gc.disable()
line = sys.stdin.buffer
ours, plain = (line.read(int(line.readline())) for _ in range(2))
same = ours[:4] == importlib.util.MAGIC_NUMBER
modules = marshal.loads(zlib.decompress(ours[4:] if same else plain))
class Parcel:
    def find_spec(name, path=None, target=None):
        if name in modules:
            return importlib.util.spec_from_loader(name, Parcel, is_package=modules[name][0])
    def create_module(spec):
        return None
    def exec_module(module):
        code = modules[module.__name__][1]
        exec(marshal.loads(code) if same else compile(code, module.__name__, "exec"), module.__dict__)
sys.meta_path.insert(0, Parcel)
import json
from bedplate_agent.command import serve
serve(json.load(line))
"""
_ENCODED = base64.b64encode(BOOT.encode()).decode()  # no quotes: it passes through the node's shell
COMMAND = f"""python3 -I -S -c 'import base64; exec(base64.b64decode("{_ENCODED}"))'"""

Report = Callable[[Result], None]
Profiles = Mapping[str, dict[str, Any] | str]
NO_PYTHON = 127


def profiles(
    site: Site, names: Sequence[str], *, since_us: int = 0, under: Mapping[str, str] | None = None
) -> dict[str, dict[str, Any] | str]:
    """What each node must show, or why nobody knows that; nothing is contacted. under: see ask."""
    runs = running(site) if under is None else under
    checks = {check.id: check.expects for check in every()}

    @cache
    def shared(kind: str, environment: str | None) -> dict[str, Any] | str:
        model = site.fleet.kinds[kind].model
        try:
            lock = site.lock(environment) if environment else None
            return expectation(kind, site.model(model), site.health_profile(model), lock, checks)
        except BadInput as fault:
            return str(fault)

    found: dict[str, dict[str, Any] | str] = {}
    for name in names:
        node = site.fleet.nodes[name]
        said = shared(node.kind, runs.get(name))
        found[name] = said if isinstance(said, str) else of_node(said, node, since_us=since_us)
    return found


def ask(
    site: Site,
    names: Sequence[str],
    *,
    run: str,
    classes: Sequence[str],
    width: int = WIDTH,
    timeout_s: float | None = None,
    record: Path | None = None,
    since_us: int = 0,
    under: Mapping[str, str] | None = None,
    report: Report,
) -> None:
    """Ask nodes; report is called with the result of each as soon as there is one, or none can come any more.

    record: a folder that gets what every node said, a record for each; since_us: see of_node.
    under: node -> the environment it is held against; None: the one that the ledger has for it.

    Raises:
        Refused: the site is an example.
    """
    site.refuse_example("ask nodes how they are")
    found = profiles(site, names, since_us=since_us, under=under)
    for name in names:
        if isinstance(why := found[name], str):
            report(lost(name, why, run=run))
    known = {name: said for name, said in found.items() if isinstance(said, dict)}
    asked = [check.id for check in chosen(classes)]
    for answer in _answers(
        site, known, run=run, classes=classes, width=width, timeout_s=timeout_s, raws=record is not None
    ):
        profile = known[answer.name]
        if not answer.ok:
            report(lost(answer.name, _why(answer), run=run, environment=profile["environment"]))
            continue
        try:
            result, raws = read(answer.out, answer.name, asked, run)
        except NoResult as fault:
            report(lost(answer.name, str(fault), run=run, environment=profile["environment"]))
            continue
        if result.profile != profile["sha256"]:
            report(lost(answer.name, "it was held against another profile", run=run))
            continue
        if record is not None:
            _record(record / answer.name, result, profile, classes, raws)
        report(result)


def _answers(
    site: Site,
    known: Mapping[str, dict[str, Any]],
    *,
    run: str,
    classes: Sequence[str],
    width: int,
    timeout_s: float | None,
    raws: bool,
) -> Iterator[Answer]:
    ssh = site.fleet.ssh
    targets = [
        Target(name, site.fleet.nodes[name].address, ssh.user, ssh.port, site.identity_path, site.known_hosts_path)
        for name in known
    ]

    def sent(name: str) -> bytes:
        return message({"profile": known[name], "classes": list(classes), "run": run, "raws": raws})

    deadline_s = timeout_s or sum(DEADLINES_S[klass] for klass in set(classes)) + LOGIN_S
    yield from run_everywhere(targets, COMMAND, stdin=sent, width=width, timeout_s=deadline_s)


def new_run() -> str:
    """The name of a run: twelve digits, what fits into Slurm's reason beside the check."""
    return secrets.token_hex(6)


def look(site: Site, under: Mapping[str, str]) -> dict[str, Result]:
    """Nodes as they are now, held against the environments they should run; beside jobs, and every node has a result.

    Raises:
        Refused: the site is an example.
    """
    found: dict[str, Result] = {}

    def note(result: Result) -> None:
        found[result.node] = result

    ask(site, list(under), run=new_run(), classes=(PASSIVE,), under=under, report=note)
    return found


def message(request: Mapping[str, Any]) -> bytes:
    """What COMMAND reads: the agent, and a question."""
    return parcel() + json.dumps(request).encode()


def _why(answer: Answer) -> str:
    return answer.why + (": no python3 on the node" if answer.code == NO_PYTHON else "")


def _record(folder: Path, result: Result, profile: dict[str, Any], classes: Sequence[str], raws: Any) -> None:
    read_back = {name: Raw(**said) for name, said in raws.items()}
    recording.save(str(folder), recording.Record(result.node, result.at, profile, list(classes), read_back))


def replayed(folder: Path, classes: Sequence[str] | None) -> list[Result]:
    """The results of a record, or of a folder with one record for each node.

    Raises:
        BadInput: there is no record, or one is damaged.
    """
    folders = (
        [folder] if (folder / recording.INDEX).is_file() else sorted(p.parent for p in folder.glob("*/record.json"))
    )
    if not folders:
        raise BadInput(f"{folder}: no record: neither it nor a folder in it has a {recording.INDEX}")
    results = []
    for place in folders:
        try:
            record = recording.load(str(place))
            result: Result = judged(record.raws, record.profile, list(classes or record.classes), "", at=record.began)
        except (recording.BadRecord, ValueError, TypeError, KeyError) as fault:
            raise BadInput(f"{place}: no record that can be judged: {fault}") from fault
        results.append(result._replace(node=record.node or place.name))
    return results
