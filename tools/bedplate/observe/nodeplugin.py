"""The pytest plug-in of tests/node: which nodes, held against which lock, over which ssh, and the report.

    pytest tests/node --site DIR [--env ENV] [--nodes NODESET]

Each test takes the fixtures `expected` (what the lock says) and `host` (testinfra); `observed` asks a node
for what most tests need, once. A node that cannot be reached is one reason, not a traceback for each test.
"""

import json
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import testinfra

from bedplate.model.faults import BedplateError
from bedplate.model.nodes import expand
from bedplate.observe.expectation import Expectation, expectations
from bedplate.observe.observed import Observed, look
from bedplate.observe.running import world as read_world
from bedplate.observe.sshargs import ssh_arguments
from bedplate.sources.site import Site, open_site

DEADLINE_S = 60  # for one check, with its questions; a checksum of a 25 GB image takes most of a minute

REPORT = pytest.StashKey[list[dict[str, Any]]]()
EXPECTED = pytest.StashKey[dict[str, Expectation]]()
SITE = pytest.StashKey[Site]()
LOST = pytest.StashKey[dict[str, str]]()


class Unreachable(Exception):
    """The node does not answer over ssh."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("bedplate")
    group.addoption("--site", default=os.environ.get("BEDPLATE_SITE", "inventory"), help="directory of the site")
    group.addoption(
        "--env", default="", help="environment to hold nodes against (default: what the ledger says they run)"
    )
    group.addoption("--nodes", default="", help="host list (default: every node that runs an environment)")
    group.addoption(
        "--report",
        default="",
        help="file for the rows, one JSON document a line; the last one says how many each node was to have",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "layer(name): the layer of the environment that a check looks at")
    config.stash[REPORT] = []
    config.stash[LOST] = {}
    signal.signal(signal.SIGALRM, _no_answer)
    try:
        site = open_site(Path(config.getoption("--site")))
        site.refuse_example("verify nodes")
        config.stash[SITE] = site
        config.stash[EXPECTED] = expectations(site, _asked(config, site))
    except BedplateError as fault:
        raise pytest.UsageError(str(fault)) from None


def _asked(config: pytest.Config, site: Site) -> dict[str, str]:
    """Node -> environment, from the options, else from the ledger."""
    environment, text = config.getoption("--env"), config.getoption("--nodes")
    names = expand(text) if text else []
    if environment:
        kinds = site.environment(environment).kinds
        return dict.fromkeys(names or [node.name for node in site.fleet.nodes_of(kinds)], environment)
    world = read_world(site)
    runs = {name: world.names[str(state.runs)] for name, state in world.nodes.items() if state.runs}
    lost = sorted(set(names) - runs.keys())
    if lost:
        raise pytest.UsageError(f"the ledger has no environment for {', '.join(lost)}: name one with --env")
    return {name: runs[name] for name in (names or runs)}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "node" in metafunc.fixturenames:
        names = metafunc.config.stash[EXPECTED].keys()
        metafunc.parametrize("node", sorted(names), scope="session")


@pytest.fixture(scope="session")
def expected(request: pytest.FixtureRequest, node: str) -> Expectation:
    return request.config.stash[EXPECTED][node]


@pytest.fixture(scope="session")
def host(request: pytest.FixtureRequest, expected: Expectation) -> Any:
    site = request.config.stash[SITE]
    connection = testinfra.get_host(
        f"ssh://{site.fleet.ssh.user}@{expected.node.address}:{site.fleet.ssh.port}",
        ssh_extra_args=ssh_arguments(site), timeout=10,
    )  # fmt: skip
    lost = request.config.stash[LOST]
    if expected.node.name in lost:
        raise Unreachable(lost[expected.node.name])
    try:
        answer = connection.run("true")
    except RuntimeError as fault:
        raise Unreachable(_ssh_words(fault)) from None
    if answer.rc:
        raise Unreachable(f"`true` ended with {answer.rc}: {answer.stderr.strip()}")
    return connection


@pytest.fixture(scope="session")
def observed(request: pytest.FixtureRequest, host: Any, expected: Expectation) -> Observed:
    seen = look(host.run, expected)
    request.config.stash[REPORT].append({"node": expected.node.name, "facts": seen.facts()})
    return seen


def _no_answer(signum: int, frame: object) -> None:  # noqa: ARG001
    raise Unreachable(f"no answer within {DEADLINE_S} s")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Any:
    """A deadline for each check, with what its fixtures ask: testinfra has none for a command."""
    if (node := _node_of(item)) in item.config.stash[LOST]:
        raise Unreachable(item.config.stash[LOST][node])
    signal.alarm(DEADLINE_S)
    yield
    signal.alarm(0)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Any:
    node = _node_of(item)
    if node in item.config.stash[LOST]:
        raise Unreachable(item.config.stash[LOST][node])
    signal.alarm(DEADLINE_S)
    yield
    signal.alarm(0)


def _node_of(item: pytest.Item) -> str:
    callspec = getattr(item, "callspec", None)
    return str(callspec.params.get("node", "")) if callspec else ""


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    outcome = yield
    report = outcome.get_result()
    node = _node_of(item)
    if call.excinfo and isinstance(call.excinfo.value, Unreachable):
        item.config.stash[LOST].setdefault(node, str(call.excinfo.value))  # what it is not asked, it cannot hang on
    if not node or (report.when == "setup" and report.passed) or (report.when == "teardown" and report.passed):
        return
    marker = item.get_closest_marker("layer")
    verdict, why = _verdict(report, call)
    item.config.stash[REPORT].append({
        "node": node, "check": item.name.partition("[")[0].removeprefix("test_").replace("_", " "),
        "layer": marker.args[0] if marker else "os", "verdict": verdict, "why": why,
    })  # fmt: skip


def _verdict(report: pytest.TestReport, call: pytest.CallInfo[None]) -> tuple[str, str]:
    """FAIL is a difference (an assertion); every other exception is an ERROR: nothing is known."""
    if report.passed:
        return "PASS", ""
    if report.skipped:
        return "SKIP", str(call.excinfo.value).removeprefix("Skipped: ") if call.excinfo else ""
    fault = call.excinfo.value if call.excinfo else None
    if isinstance(fault, Unreachable):
        return "UNREACHABLE", str(fault)
    if report.when == "call" and isinstance(fault, AssertionError):
        return "FAIL", str(fault).partition("\nassert")[0].strip() or "differs"
    return "ERROR", f"{type(fault).__name__}: {fault}"


def pytest_sessionfinish(session: pytest.Session) -> None:
    path = session.config.getoption("--report")
    if path:
        checks = Counter(
            item.callspec.params["node"]
            for item in session.items
            if isinstance(item, pytest.Function) and hasattr(item, "callspec") and "node" in item.callspec.params
        )
        lines = [json.dumps(row) for row in [*session.config.stash[REPORT], {"end": checks}]]
        Path(path).write_text("\n".join(lines) + "\n")


def _ssh_words(fault: Exception) -> str:
    """The last thing ssh said, out of testinfra's error with its whole command."""
    text = str(fault)
    for mark in ("_stderr=b'", '_stderr=b"', "stderr=b'", 'stderr=b"'):
        if mark in text:
            said = text.rpartition(mark)[2].rpartition(mark[-1])[0]
            lines = [line for line in said.replace("\\r", "").split("\\n") if line.strip()]
            return lines[-1] if lines else text
    return text
