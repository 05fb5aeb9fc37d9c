"""Images on eight nodes over links of a fixed rate: a swarm, a patch, slow and restarted nodes, garbage."""

import json
import threading
import time
from typing import Any

import pytest

from lab import faults, network
from lab.places import Places
from lab.run import on
from lab.slurm import wait_for

pytestmark = [pytest.mark.lab(minutes=8), pytest.mark.long]
LAB_NODES = 8
CTL = "ctl"
IMAGES = "/var/lib/bedplate/images"
SITE = "/var/lib/bedplate/site"
MBIT = 40
FILL_MIB = 24  # random data in the image: the link takes 5 s for it


def bedplate(*words: str) -> Any:
    return json.loads(on(CTL, ["bedplate", *words, "--json"], timeout_s=900).out)


def made(name: str, change: str) -> dict[str, Any]:
    """Build, push and import the image of A with a line of code in it; its squashfs."""
    definition = f"{SITE}/images/a"
    on(CTL, ["sh", "-euc", f"""
cd {definition}
[ -e data.bin ] || head -c {FILL_MIB << 20} /dev/urandom > data.bin
printf '%s\\n' 'print("{change}")' > train.py
grep -q train.py Dockerfile || printf 'COPY data.bin /opt/data.bin\\nCOPY train.py /opt/train.py\\n' >> Dockerfile
"""])  # fmt: skip
    for verb in ("build", "push", "import"):
        done = bedplate("image", verb, name)
    squashfs: dict[str, Any] = done["record"]["squashfs"]
    return squashfs


def digests(names: list[str], file: str) -> dict[str, str]:
    """What each node has under that name, hashed there."""
    found = {name: on(name, ["sha256sum", f"{IMAGES}/{file}"], check=False).out for name in names}
    return {name: said.split()[0] if said else "" for name, said in found.items()}


def forget(names: list[str], file: str) -> None:
    for name in names:
        on(name, ["rm", "-f", f"{IMAGES}/{file}"])


@pytest.fixture(scope="module")
def names(lab: Places) -> list[str]:
    """The nodes, every link of the lab held to a rate."""
    found = [name for name in bedplate("status")["nodes"] if name.startswith("n")]
    for host in (CTL, *found):
        network.limit(lab, host, MBIT)
    return sorted(found)


@pytest.fixture(scope="module")
def first(names: list[str]) -> dict[str, Any]:
    return made("A", "first")


def file_of(squashfs: dict[str, Any]) -> str:
    return f"{squashfs['sha256'].replace(':', '-')}.sqsh"


def test_eight_nodes_get_the_image_from_each_other(lab: Places, names: list[str], first: dict[str, Any]) -> None:
    before = network.sent(lab, CTL)
    placed = bedplate("image", "place", "A")
    sent = network.sent(lab, CTL) - before
    assert [row["result"] for row in placed["nodes"]] == ["placed"] * len(names)
    assert {row["engine"] for row in placed["nodes"]} == {"torrent"}
    assert set(digests(names, file_of(first)).values()) == {first["sha256"].removeprefix("sha256:")}
    (move,) = placed["moves"]
    print(f"source sent {move['source_bytes'] / first['size']:.2f} x {first['size']} bytes, {sent} on the wire")
    assert sent < 3 * first["size"]
    assert abs(sent - move["source_bytes"]) < first["size"] // 2, "what is counted is what left"
    (event,) = bedplate("ledger", "log", "--kind", "image.distributed")
    assert event["body"]["moves"][0]["source_bytes"] == move["source_bytes"]


def test_a_change_of_code_moves_less_than_fifteen_percent(lab: Places, names: list[str], first: dict[str, Any]) -> None:
    second = made("A", "second")
    assert second["sha256"] != first["sha256"]
    before = network.sent(lab, CTL)
    placed = bedplate("image", "place", "A")
    sent = network.sent(lab, CTL) - before
    assert [(row["result"], row["patched"]) for row in placed["nodes"]] == [("placed", True)] * len(names)
    (move,) = placed["moves"]
    print(f"patch of {move['size']} bytes for {second['size']}; {sent} left the controller for {len(names)} nodes")
    assert move["what"] == "patch"
    assert move["size"] < second["size"] * 15 // 100
    assert set(digests(names, file_of(second)).values()) == {second["sha256"].removeprefix("sha256:")}


def test_a_slow_node_is_by_passed_and_named_and_goes_on_later(lab: Places, names: list[str]) -> None:
    image = made("A", "second")
    file = file_of(image)
    forget(names, file)
    slow = names[-1]
    network.limit(lab, slow, 1)
    done = on(CTL, ["bedplate", "image", "place", "A", "--whole", "--json"], check=False, timeout_s=900)
    assert done.code == 4, done.err
    rows = {row["node"]: row for row in json.loads(done.out)["nodes"]}
    assert rows[slow]["result"] == "slow"
    assert "MB/s where the others had" in rows[slow]["why"]
    assert {row["result"] for name, row in rows.items() if name != slow} == {"placed"}
    network.limit(lab, slow, MBIT)
    (row,) = bedplate("image", "place", "A", "--whole", "--nodes", slow)["nodes"]
    assert row["result"] == "placed"
    assert set(digests(names, file).values()) == {image["sha256"].removeprefix("sha256:")}


def test_a_node_that_is_restarted_meanwhile_has_the_image_in_the_end(lab: Places, names: list[str]) -> None:
    image = made("A", "second")
    file = file_of(image)
    forget(names, file)
    victim, answers = names[2], []
    placing = threading.Thread(target=lambda: answers.append(bedplate("image", "place", "A", "--whole")))
    placing.start()
    part = f"{IMAGES}/.{file}.swarm"
    wait_for("the transfer has begun", lambda: on(victim, ["test", "-s", part], check=False).code == 0)
    faults.apply(lab, victim, "off", mend=False)
    faults.apply(lab, victim, "off", mend=True)
    placing.join(600)
    assert answers, "the command ended with 0"
    rows = {row["node"]: row["result"] for row in answers[0]["nodes"]}
    assert set(rows.values()) == {"placed"}, rows
    assert set(digests(names, file).values()) == {image["sha256"].removeprefix("sha256:")}


def test_two_nodes_are_served_over_http_and_one_by_ssh(names: list[str]) -> None:
    file = file_of(made("A", "second"))
    forget(names[:2], file)
    placed = bedplate("image", "place", "A", "--whole")
    assert [row["engine"] for row in placed["nodes"] if row["result"] == "placed"] == ["http", "http"]
    forget(names[:1], file)
    (row,) = bedplate("image", "place", "A", "--whole", "--nodes", names[0], "--engine", "ssh")["nodes"]
    assert (row["result"], row["engine"]) == ("placed", "ssh")


def test_garbage_goes_but_for_what_a_process_holds(names: list[str], first: dict[str, Any]) -> None:
    file, node = file_of(first), names[0]
    on(node, ["sh", "-c", f"exec 3< {IMAGES}/{file}; echo $$ > /tmp/holder; sleep 3600 < /dev/null > /dev/null 2>&1 &"])
    holder = [pid for pid in on(node, ["pgrep", "-x", "sleep"]).out.split() if pid]
    told = {row["node"]: row for row in bedplate("image", "gc", "A")}
    assert all(row["freed"] == 0 for row in told.values())
    done = {row["node"]: {one["name"]: one for one in row["files"]} for row in bedplate("image", "gc", "A", "--yes")}
    assert done[node][file]["does"] == "keep"
    assert done[node][file]["why"].startswith("in use: process ")
    assert {done[name][file]["does"] for name in names[1:]} == {"removed"}
    assert on(node, ["sha256sum", f"{IMAGES}/{file}"]).out.split()[0] == first["sha256"].removeprefix("sha256:")
    on(node, ["kill", *holder])
    time.sleep(1)
    (row,) = bedplate("image", "gc", "--nodes", node, "--yes")
    assert {one["name"]: one["does"] for one in row["files"]}[file] == "removed"


def test_the_ledger_tells_it(names: list[str]) -> None:
    events = bedplate("ledger", "log", "--kind", "image.distributed")
    slow = [event for event in events if event["body"]["not_placed"]]
    assert [list(event["body"]["not_placed"]) for event in slow] == [[names[-1]]]
