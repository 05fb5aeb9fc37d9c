"""Who is a peer of whom, which way a file takes, who is too slow, what is kept: decided without a node."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bedplate.decide.distribution.engines import Can, Engine, base, engines
from bedplate.decide.distribution.keep import Known, kept, known_images
from bedplate.decide.distribution.patches import Patch, parse_patch, window
from bedplate.decide.distribution.peers import of_source, peers
from bedplate.decide.distribution.pieces import LARGEST, SMALLEST, piece_bytes
from bedplate.decide.distribution.slowness import Patience, Progress, too_slow
from bedplate.decide.fold import NodeState
from bedplate.model.event import Event
from unit.lock_sample import digest

MIB = 1 << 20

racks = st.lists(st.integers(1, 40), min_size=1, max_size=25).map(
    lambda counts: {f"r{rack}": [f"r{rack}n{number}" for number in range(count)] for rack, count in enumerate(counts)}
)


# --- peers ----------------------------------------------------------------------------------------


def reached(found: dict[str, set[str]], first: str, without: set[str]) -> set[str]:
    seen, front = {first}, [first]
    while front:
        for peer in found[front.pop()] - seen - without:
            seen.add(peer)
            front.append(peer)
    return seen


@given(racks)
def test_everybody_reaches_everybody_and_peers_are_so_both_ways(fleet: dict[str, list[str]]) -> None:
    found = peers(fleet)
    everybody = {node for nodes in fleet.values() for node in nodes}
    assert set(found) == everybody
    assert all(node in found[peer] for node, its in found.items() for peer in its)
    assert all(node not in its for node, its in found.items())
    assert reached(found, next(iter(everybody)), set()) == everybody


@given(racks, st.data())
def test_no_single_node_that_fails_cuts_a_rack_in_two(fleet: dict[str, list[str]], data: st.DataObject) -> None:
    found = peers(fleet)
    nodes = data.draw(st.sampled_from([nodes for nodes in fleet.values() if nodes]))
    gone = data.draw(st.sampled_from(nodes))
    left = [node for node in nodes if node != gone]
    inside = {node: found[node] & set(nodes) for node in nodes}
    assert not left or reached(inside, left[0], {gone}) == set(left)


def test_most_peers_of_a_node_are_its_rack_mates() -> None:
    fleet = {f"r{rack}": [f"r{rack}n{number}" for number in range(32)] for rack in range(20)}
    found = peers(fleet)
    pairs = [(node.split("n")[0], peer.split("n")[0]) for node, its in found.items() for peer in its]
    across = sum(one != other for one, other in pairs)
    assert across / len(pairs) < 0.1
    assert max(len(its) for its in found.values()) < 20
    assert len(of_source(fleet)) == 40
    assert {node.split("n")[0] for node in of_source(fleet)} == set(fleet)


def test_the_source_knows_several_nodes_also_of_a_small_fleet() -> None:
    assert of_source({"r1": ["n1", "n2", "n3"], "r2": ["n4"]}) == ["n1", "n2", "n3", "n4"]
    assert len(of_source({"r1": [f"n{number}" for number in range(30)]})) == 8
    assert of_source({}) == []


# --- engines --------------------------------------------------------------------------------------

ABLE = Can(torrent=True, xdelta3=True, bases=frozenset())
PLAIN = Can(torrent=False, xdelta3=False, bases=frozenset())


@pytest.mark.parametrize(
    ("asked", "able", "plain", "says"),
    [
        (Engine.AUTO, 3, 0, {Engine.TORRENT: 3}),
        (Engine.AUTO, 3, 2, {Engine.TORRENT: 3, Engine.HTTP: 2}),
        (Engine.AUTO, 2, 2, {Engine.HTTP: 4}),
        (Engine.AUTO, 0, 1, {Engine.HTTP: 1}),
        (Engine.SSH, 3, 2, {Engine.SSH: 5}),
        (Engine.TORRENT, 1, 1, {Engine.TORRENT: 2}),
        (Engine.TORRENT, 0, 0, {}),
    ],
)
def test_a_swarm_is_for_several_nodes_that_can(asked: Engine, able: int, plain: int, says: dict[Engine, int]) -> None:
    nodes = {f"a{number}": ABLE for number in range(able)} | {f"p{number}": PLAIN for number in range(plain)}
    found = engines(asked, nodes)
    assert {engine: len(names) for engine, names in found.items()} == says
    assert sorted(name for names in found.values() for name in names) == sorted(nodes)


def test_a_patch_is_made_against_what_most_nodes_have_and_of_equals_the_latest() -> None:
    known = {"old": 1, "new": 2}
    nodes = {
        "n1": replace(ABLE, bases=frozenset({"old"})),
        "n2": replace(ABLE, bases=frozenset({"old", "new"})),
        "n3": replace(PLAIN, bases=frozenset({"new"})),  # has it, and no xdelta3
    }
    assert base(nodes, known) == ("old", ["n1", "n2"])
    assert base({"n2": nodes["n2"]}, known) == ("new", ["n2"])
    assert base({"n3": nodes["n3"]}, known) is None
    assert base(nodes, {}) is None


@given(st.integers(1, 10**12))
def test_pieces_are_powers_of_two_and_not_too_many(size: int) -> None:
    found = piece_bytes(size)
    assert SMALLEST <= found <= LARGEST
    assert found & (found - 1) == 0
    assert size <= found * 6144 or found == LARGEST


@pytest.mark.parametrize(("size", "says"), [(64 * MIB, 64 << 10), (25 * 10**9, 4 * MIB), (7 * 10**9, 2 * MIB)])
def test_sizes_of_pieces(size: int, says: int) -> None:
    assert piece_bytes(size) == says


# --- slowness -------------------------------------------------------------------------------------

PATIENCE = Patience(least_s=60, times=4, still_s=120, floor=2_000_000)
SIZE = 1_000_000_000


def running(have: int, *, began: float = 0, moved: float = 1000, ended: float | None = None) -> Progress:
    return Progress(have, SIZE, began, moved, ended)


@pytest.mark.parametrize(
    ("others", "one", "now", "says"),
    [
        ([20, 22], running(300_000_000), 83, None),
        ([20, 22], running(300_000_000), 89, "slow: 300.0 of 1000.0 MB in 89 s, 3.4 MB/s where the others had 47.6"),
        ([2, 2], running(300_000_000), 59, None),  # 60 s are for everybody
        ([2, 2], running(300_000_000), 61, "where the others had 500.0"),
        ([20, None, None], running(300_000_000), 200, None),  # most are on their way: that is how fast it is today
        ([], running(300_000_000, moved=10), 129, None),
        ([], running(300_000_000, moved=10), 131, "stands still since 121 s with 300.0 of 1000.0 MB"),
        ([], running(SIZE, moved=10), 400, None),  # has all of it, and hashes
        ([], running(1, moved=600), 570, "less than 2 MB/s"),
        ([], running(1, began=100, moved=600), 570, None),
    ],
)
def test_who_is_too_slow_follows_from_what_the_others_did(
    others: list[float | None], one: Progress, now: float, says: str | None
) -> None:
    fleet = {
        f"n{number}": running(SIZE if ended else 500_000_000, ended=ended) for number, ended in enumerate(others, 1)
    }
    found = too_slow(fleet | {"slow": one}, now, PATIENCE)
    assert set(found) == ({"slow"} if says else set())
    assert says is None or says in found["slow"]


def test_a_node_that_failed_is_not_slow_besides() -> None:
    fleet = {"n1": running(SIZE, ended=2), "n2": running(SIZE, ended=2), "gone": running(5, moved=1)}
    assert set(too_slow(fleet, 500, PATIENCE)) == {"gone"}
    assert too_slow(fleet, 500, PATIENCE, ["gone"]) == {}


# --- patches --------------------------------------------------------------------------------------

PATCH = Patch("a" * 64, "b" * 64, "c" * 64, 400, 1000, 1 << 26, "Xdelta version 3.0.11")


def test_a_record_of_a_patch_reads_as_it_was_written() -> None:
    assert parse_patch(PATCH.text()) == PATCH
    assert PATCH.name == f"delta-{'a' * 64}-{'b' * 64}.xd3"
    assert PATCH.worth_it
    assert not replace(PATCH, size=501).worth_it


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"schema": 1}', PATCH.text().replace("400", '"400"'), PATCH.text().replace(": 1,", ": 2,")],
)
def test_a_record_that_is_none_is_none(text: str) -> None:
    assert parse_patch(text) is None


@given(st.text())
def test_any_text_is_a_record_or_none(text: str) -> None:
    parse_patch(text)


@pytest.mark.parametrize(("size", "says"), [(1, 64 * MIB), (65 * MIB, 128 * MIB), (25 * 10**9, 1024 * MIB)])
def test_xdelta3_looks_back_as_far_as_a_machine_can_spare(size: int, says: int) -> None:
    assert window(size) == says


# --- what a node keeps ----------------------------------------------------------------------------

A, B, C, D = (f"sha256:{letter * 64}" for letter in "abcd")
KNOWN = Known({A: digest("1"), B: digest("2"), C: None}, {A: "A", B: "B"})


def test_a_node_keeps_what_it_runs_ran_is_to_run_and_may_be_asked_to_run() -> None:
    state = NodeState(runs=A, previous=B, target=A)
    found = kept(state, KNOWN, {digest("1"): "lock A", digest("9"): "imported for C"})
    assert found.images == {
        digest("1"): "current: environment A",
        digest("2"): "previous: environment B",
        digest("9"): "candidate: imported for C",
    }
    assert not found.unknown


def test_an_environment_whose_image_is_not_known_is_a_reason_to_touch_nothing() -> None:
    found = kept(NodeState(runs=A, previous=D), KNOWN, {})
    assert found.unknown == (f"previous environment {D}: the ledger does not say which image it has",)


def test_an_environment_without_an_image_keeps_none() -> None:
    assert kept(NodeState(runs=C), KNOWN, {}) == kept(NodeState(), KNOWN, {})


def test_the_ledger_knows_images_by_locks_and_by_what_was_placed() -> None:
    def event(number: int, kind: str, identity: str | None, body: Mapping[str, object]) -> Event:
        return Event(number, "", "", kind, (), identity, body, "", "", "")

    locked = {"environment": "A", "document": {"image": {"squashfs_sha256": digest("1")}}}
    found = known_images([
        event(1, "lock.resolved", A, locked),
        event(2, "lock.resolved", C, {"environment": "C", "document": {"image": None}}),
        event(3, "image.placed", A, {"squashfs_sha256": digest("8")}),  # the lock is what counts
        event(4, "image.placed", B, {"squashfs_sha256": digest("2")}),
        event(5, "image.placed", None, {"squashfs_sha256": digest("3")}),
    ])  # fmt: skip
    assert found.images == {A: digest("1"), B: digest("2"), C: None}
    assert found.name(A) == "A"
    assert found.name(B) == B
