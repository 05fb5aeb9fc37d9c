"""What the boot server refuses, over real HTTP, with the words that stand in the ledger; and what it records of steps."""

# ruff: noqa: E501  messages stand as they are printed

import http.client
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bedplate.act.arming import armed_files
from bedplate.cli.netboot import netboot
from bedplate.decide.netboot import protocol
from bedplate.decide.netboot.protocol import KINDS, Install, Phase, fold_installs
from bedplate.decide.netboot.tftplog import sent
from bedplate.model.event import Draft, Event
from bedplate.model.faults import BedplateError, Refused
from bedplate.sources import checkout
from unit.autoinstall_sample import KEY
from unit.netboot_sample import SECRETS
from unit.test_netboot_server import LONG_S, Client, Place, install, server

pytestmark = pytest.mark.slow  # a server for each test

OTHER = "x" * 43


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.ledger.close()


def refusals(place: Place) -> list[tuple[Any, ...]]:
    """Who, what, which status, why: of each refusal in the ledger."""
    return [
        (event.subjects[0], event.body["asked"], event.body["status"], event.body["why"])
        for event in place.ledger.events(kinds=["netboot.refused"])
    ]


def now(place: Place, name: str) -> Install:
    return fold_installs(place.ledger.events(kinds=KINDS))[name]


def last(place: Place, kind: str) -> Event:
    return list(place.ledger.events(kinds=[kind]))[-1]


def test_an_oversized_upload_is_refused_before_it_is_sent_and_recorded(place: Place) -> None:
    place.arm("gpu001")
    with server(place) as client:
        client.boots("gpu001")
        client.seed("gpu001")
        token = place.token("gpu001")
        for what, most in (("upload", 64 << 20), ("inventory", 4 << 20), ("report", 1 << 20), ("phone", 64 << 10)):
            connection = http.client.HTTPConnection("127.0.0.1", client.port, timeout=LONG_S)
            target = f"/{what}/gpu001/{token}" + ("/logs.tar.gz" if what == "upload" else "")
            connection.putrequest("PUT" if what == "upload" else "POST", target)
            connection.putheader("Content-Length", str(most + 1))
            connection.endheaders()
            answer = connection.getresponse()
            assert (answer.status, answer.read()) == (413, f"more than {most} bytes\n".encode())
            connection.close()
            assert refusals(place)[-1] == ("node:gpu001", what, 413, f"more than {most} bytes")
    assert not (place.folder / "logs/gpu001").exists()


def test_a_replayed_token_is_refused_and_recorded_with_what_it_was_used_for(place: Place) -> None:
    place.arm("gpu001")
    with server(place) as client:
        client.boots("gpu001")
        client.seed("gpu001")
        assert client.inventory("gpu001")[0] == 200
        assert client.seed("gpu001") == 410
        assert refusals(place)[-1] == ("node:gpu001", "seed user-data", 410, "the seed was fetched: inventory fits")
        client.report("gpu001", "bedplate/installed")
        client.phone("gpu001")
        asks: list[tuple[Callable[[], int], str]] = [
            (lambda: client.seed("gpu001"), "seed user-data"), (lambda: client.phone("gpu001"), "phone"),
            (lambda: client.report("gpu001", "again"), "report"), (lambda: client.inventory("gpu001")[0], "inventory"),
        ]  # fmt: skip
        for ask, what in asks:
            assert ask() == 410
            assert refusals(place)[-1] == ("node:gpu001", what, 410, "the token was used: first boot")


def test_the_token_of_an_arming_before_is_no_token(place: Place) -> None:
    place.arm("gpu001")
    old = place.token("gpu001")
    place.arm("gpu001")
    with server(place) as client:
        assert client.seed("gpu001", token=old) == 403
        assert client.seed("gpu001", token=place.token("gpu001")) == 200
    assert refusals(place) == [("node:gpu001", "seed user-data", 403, "the token is of no arming of this node")]


@pytest.mark.parametrize(
    ("path", "status", "why"),
    [
        ("/files/../armed/gpu001/index.json", 400, "the path leads elsewhere"),
        ("/files/%2e%2e%2farmed%2fgpu001%2findex.json", 400, "the path leads elsewhere"),
        ("/files/..%5carmed", 400, "the path leads elsewhere"),
        ("/files/%00", 400, "the path leads elsewhere"),
        ("/seed/gpu001/" + OTHER + "/..%2f..%2findex.json", 400, "the path leads elsewhere"),
        ("/armed/gpu001/index.json", 404, "nothing is there"),
        ("/files/" + "a" * 3000, 414, "the path is too long"),
    ],
)
def test_a_path_that_leads_elsewhere_is_refused_and_recorded_without_what_stands_behind_its_first_word(
    place: Place, path: str, status: int, why: str
) -> None:
    place.arm("gpu001")
    with server(place) as client:
        assert client.ask("GET", path) == (status, f"{why}\n".encode())
    asked = "GET /" + path.split("/")[1]
    assert refusals(place) == [("address:127.0.0.1", asked, status, why)]


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"serial": "EXAMPLE-000001", "mac": "02:00:00:00:02:00"},
         "serial EXAMPLE-000001 is of gpu001, MAC 02:00:00:00:02:00 of gpu002: a swapped cable or adapter"),
        ({"serial": "STRANGE", "mac": "02:99:00:00:00:00"}, "no machine has serial 'STRANGE'"),
        ({"serial": "To be filled by O.E.M.", "mac": "02:00:00:00:01:00"}, "which has another serial"),
        ({}, "no machine has serial ''"),
    ],
)  # fmt: skip
def test_an_unknown_machine_gets_its_own_disk_and_a_record(place: Place, asked: dict[str, str], why: str) -> None:
    place.arm("gpu001", "gpu002")
    with server(place) as client:
        status, script = client.ask("GET", "/boot/ipxe?" + urlencode(asked))
    assert (status, b"autoinstall" in script) == (200, False)
    assert [each[:3] for each in refusals(place)] == [("address:127.0.0.1", "boot", 200)]
    assert why in refusals(place)[0][3]
    assert place.phase("gpu001") is Phase.ARMED, "nothing was asked in its name"


def test_a_part_of_another_machine_stops_the_installation_and_names_that_machine(place: Place) -> None:
    place.arm("gpu001")
    expected = place.index["nodes"]["gpu001"]
    nics = [{"mac": mac} for mac in (*expected["macs"], *expected["nic_macs"], "02:00:00:00:02:03")]
    with server(place) as client:
        client.boots("gpu001")
        client.seed("gpu001")
        assert client.inventory("gpu001", nics=nics) == (
            409,
            b"MAC 02:00:00:00:02:03 is of gpu002: a swapped adapter\n",
        )
        assert client.report("gpu001", "subiquity/Install") == 410
    assert (now(place, "gpu001").phase, now(place, "gpu001").why) == (
        Phase.STOPPED, "MAC 02:00:00:00:02:03 is of gpu002: a swapped adapter",
    )  # fmt: skip


def test_the_address_of_the_firmware_is_not_remembered_and_that_of_the_first_boot_is(place: Place) -> None:
    """DHCP gives firmware, live system and installed system different addresses when they ask as different clients."""

    def ask(client: Client, address: str, method: str, path: str, body: bytes | None = None) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", client.port, LONG_S, source_address=(address, 0))
        connection.request(method, path, body)
        status = connection.getresponse().status
        connection.close()
        return status

    place.arm("gpu001")
    with server(place) as client:
        assert client.boots("gpu001"), "from 127.0.0.1"
        seed = f"/seed/gpu001/{place.token('gpu001')}/"
        assert ask(client, "127.0.0.2", "GET", seed + "user-data") == 200
        assert ask(client, "127.0.0.3", "GET", seed + "meta-data") == 403
        assert refusals(place)[-1][2:] == (403, "the seed went to 127.0.0.2")
        assert client.inventory("gpu001")[0] == 200
        client.report("gpu001", "bedplate/installed")
        body = urlencode({"pub_key_ed25519": KEY}).encode()
        assert ask(client, "127.0.0.4", "POST", f"/phone/gpu001/{place.token('gpu001')}", body) == 200
    assert now(place, "gpu001").address == "127.0.0.4"
    address = place.site.fleet.nodes["gpu001"].address
    assert place.site.known_hosts_path.read_text().startswith(f"gpu001,{address} "), (
        "that of the fleet, not of a report"
    )


# --- steps -----------------------------------------------------------------------------------------------------


def machine_of(place: Place, name: str, address: str) -> None:
    """Let a node have an address of this computer."""
    object.__setattr__(place.site.fleet.nodes[name], "address", address)


def test_the_question_of_the_firmware_and_secure_boot_are_in_the_ledger(place: Place) -> None:
    place.arm("gpu001")
    said = {
        "serial": "EXAMPLE-000001",
        "mac": "02:00:00:00:01:00",
        "buildarch": "x86_64",
        "platform": "efi",
        "uuid": "u",
    }
    with server(place) as client:
        client.ask("GET", "/boot/ipxe?" + urlencode(said))
        client.seed("gpu001")
        client.inventory("gpu001", secure_boot=False)
    asked = last(place, "netboot.asked").body
    assert {key: asked[key] for key in said} == said
    assert (asked["answer"], asked["address"]) == ("install", "127.0.0.1")
    assert last(place, "netboot.inventory").body["secure_boot"] is False


def test_a_fetched_kernel_is_a_step_once_and_of_nobody_else(place: Place) -> None:
    place.arm("gpu001")
    machine_of(place, "gpu001", "127.0.0.1")
    kernel = place.boot().netboot.kernel.name
    with server(place) as client:
        (place.folder / "files" / kernel).write_bytes(b"k")
        (place.folder / "files/initrd").write_bytes(b"i")
        assert client.ask("GET", f"/files/{kernel}") == (200, b"k")
        assert now(place, "gpu001").fetched_at is None, "it was not given the installer"
        client.boots("gpu001")
        client.ask("GET", "/files/initrd")
        assert now(place, "gpu001").fetched_at is None
        for _ in range(2):
            assert client.ask("GET", f"/files/{kernel}") == (200, b"k")
        assert (now(place, "gpu001").phase, now(place, "gpu001").stage) == (Phase.BOOTING, "kernel fetched")
        rows = CliRunner().invoke(netboot, ["status"], obj=place.site.root).output.splitlines()
        assert rows[1].split("\t")[-1] == "kernel fetched"
        client.seed("gpu001")
        assert now(place, "gpu001").stage is None
    assert [event.body["name"] for event in place.ledger.events(kinds=["netboot.fetched"])] == [kernel]


def test_a_kernel_by_tftp_is_seen_in_the_log_of_dnsmasq(place: Place) -> None:
    place.arm("gpu001")
    boot = place.boot()
    address = place.site.fleet.nodes["gpu001"].address
    head = f"Nov 30 02:51:12 dnsmasq-tftp[7]: sent {place.folder}/tftp"
    (place.folder.parent / "dnsmasq.log").write_text(
        f"{head}/grub/grub.cfg to {address}\n{head}/files/{boot.netboot.kernel.name} to {address}\n"
    )
    boot.heard()
    assert (now(place, "gpu001").phase, now(place, "gpu001").stage) == (Phase.BOOTING, "kernel fetched")


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("Nov 30 02:51:12 dnsmasq-tftp[71]: sent /v/tftp/grub/grub.cfg to 10.20.1.1\n", ("grub/grub.cfg", "10.20.1.1")),
        ("Nov 30 02:51:12 dnsmasq-tftp[71]: error 8 User aborted the transfer received from 10.20.1.1", None),
        ("Nov 30 02:51:12 dnsmasq-tftp[71]: file /v/tftp/grub/x not found for 10.20.1.1", None),
        ("Nov 30 02:51:12 dnsmasq-dhcp[71]: sent /v/tftp/grub/grub.cfg to 10.20.1.1", None),
    ],
)
def test_a_line_of_dnsmasqs_log_says_what_was_sent_and_to_whom(line: str, found: tuple[str, str] | None) -> None:
    assert sent(line) == found


def test_the_log_of_tftp_has_an_absolute_path_or_it_would_lie_elsewhere() -> None:
    """`dnsmasq -k` goes to / first."""
    unit = (checkout.root() / "roles/netboot/templates/dnsmasq.service.j2").read_text()
    assert "--log-facility=/var/log/bedplate-dnsmasq/dnsmasq.log" in unit


def test_the_live_view_shows_the_next_step_when_it_comes(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.arm("gpu001")
    with server(place) as client:
        turns: list[Callable[[], object]] = [lambda: client.boots("gpu001"), lambda: client.seed("gpu001")]

        def later(_: float) -> None:
            if not turns:
                raise KeyboardInterrupt
            turns.pop(0)()

        monkeypatch.setattr("bedplate.cli.netboot.time.sleep", later)
        done = CliRunner().invoke(netboot, ["status", "--watch"], obj=place.site.root)
    rows = [line.split("\t") for line in done.output.splitlines() if line.startswith("gpu001")]
    assert [row[1] for row in rows] == ["armed", "asked", "seed fetched"]


def test_grubs_files_are_never_half_written_while_they_are_read(place: Place) -> None:
    """A machine may be fetching its file while it is armed anew."""
    place.arm("gpu001")
    boot = place.boot()
    boot.publish()
    file = place.folder / "tftp/grub/hosts/EXAMPLE-000001.cfg"
    ended = threading.Event()
    whole: set[str] = set()
    seen: set[str] = set()

    def read() -> None:
        while not ended.is_set():
            seen.add(file.read_text())

    reader = threading.Thread(target=read)
    with ExitStack() as stack:
        stack.callback(reader.join)
        stack.callback(ended.set)
        reader.start()
        for _ in range(10):
            place.arm("gpu001")
            boot.publish()
            files = armed_files(place.folder, "gpu001")
            assert files is not None
            whole.add(files.file("install.grub").decode())
    assert len(seen & whole) >= 1
    assert len(seen - whole) <= 1, "that of the first arming"
    assert all(text.endswith("}\n") for text in seen)


# --- whatever is sent, by a machine that is past each door -----------------------------------------------------

JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats()
    | st.text(st.characters(codec=None), max_size=6) | st.sampled_from(["\ud800", "\0", "0", "x" * 400]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["found", "disks", "nics", "dmi", "bmc", "address", "name", "serial", "mac", "label", "children",
                         "mountpoint", "carrier", "secure_boot", "product_serial", "bios_version", "result", "description",
                         "event_type", "differences", "status", "errors", "recoverable"]), inner, max_size=5),
    max_leaves=12,
)  # fmt: skip
BODY = st.binary(max_size=60) | JSON.map(lambda value: json.dumps(value).encode()) | JSON.map(
    lambda value: json.dumps({"found": {"disks": [value], "nics": [value], "dmi": value, "bmc": value}}).encode()
)  # fmt: skip
FORM = st.binary(max_size=60) | st.lists(
    st.tuples(st.sampled_from(["pub_key_ed25519", "hostname", "x"]), st.text(st.characters(codec="utf-8"), max_size=8)), max_size=40
).map(lambda pairs: urlencode(pairs).encode())  # fmt: skip


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    place = Place(tmp_path_factory.mktemp("fuzz"))
    with server(place) as client:
        yield client
    assert place.ledger.verify() == []
    place.ledger.close()


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(inventory=BODY, report=BODY, phone=FORM, finished=BODY)
def test_whatever_a_machine_sends_at_its_own_time_is_answered_and_installs_nothing_by_itself(
    running: Client, inventory: bytes, report: bytes, phone: bytes, finished: bytes
) -> None:
    place, client = running.place, running
    place.arm("gpu001")
    assert client.boots("gpu001")
    assert client.seed("gpu001") == 200

    def post(what: str, body: bytes) -> int:
        return client.ask("POST", f"/{what}/gpu001/{place.token('gpu001')}", body)[0]

    assert post("report", report) in (200, 400)
    assert place.phase("gpu001") in (Phase.SEEDED, Phase.FAILED), "no report is an inventory"
    assert post("inventory", inventory) in (409, 410)
    assert place.phase("gpu001") is not Phase.CHECKED
    place.arm("gpu001")
    assert client.boots("gpu001")
    assert client.seed("gpu001") == 200
    assert client.inventory("gpu001")[0] == 200
    assert post("phone", phone) == 400, "no key of a host"
    assert client.phone("gpu001") == 200
    assert post("finished", finished) in (200, 400)
    assert place.phase("gpu001") in (Phase.REPORTED, Phase.BROKEN, Phase.FINISHED)


@pytest.mark.parametrize(
    ("what", "body", "status"),
    [
        ("report", b'{"name": "x", "result": "FAIL", "description": "\\ud800 no mirror"}', 200),
        ("report", b'{"a":' + b"[" * 20_000, 400), ("report", b'{"timestamp": 1' + b"0" * 5000 + b"}", 400),
        ("phone", b"&".join(b"a=1" for _ in range(100)), 409), ("inventory", b"\xff\xfe", 409),
    ],
)  # fmt: skip
def test_text_that_is_none_is_answered_and_what_it_says_is_kept(
    place: Place, what: str, body: bytes, status: int
) -> None:
    place.arm("gpu001")
    with server(place) as client:
        client.boots("gpu001")
        client.seed("gpu001")
        assert client.ask("POST", f"/{what}/gpu001/{place.token('gpu001')}", body)[0] == status
    if status == 200:
        assert (now(place, "gpu001").phase, now(place, "gpu001").why) == (Phase.FAILED, "? no mirror")


def test_a_phone_call_of_too_many_fields_has_no_key(place: Place) -> None:
    place.arm("gpu001")
    with server(place) as client:
        client.boots("gpu001")
        client.seed("gpu001")
        client.inventory("gpu001")
        body = urlencode([("pub_key_ed25519", KEY), *(("x", "y") for _ in range(100))]).encode()
        assert client.ask("POST", f"/phone/gpu001/{place.token('gpu001')}", body) == (400, b"no ed25519 host key\n")
        assert refusals(place)[-1] == ("node:gpu001", "phone", 400, "no ed25519 host key")


def test_an_installed_machine_that_is_restarted_and_asks_again_and_again_is_never_installed_anew(place: Place) -> None:
    place.arm("gpu001")
    with server(place) as client:
        install(place, client, "gpu001")
        assert [client.boots("gpu001") for _ in range(5)] == [False] * 5
    assert place.phase("gpu001") is Phase.REPORTED
    assert protocol.boot_answer(now(place, "gpu001"), place.now())[0] is protocol.Boot.LOCAL


def test_where_the_ledger_cannot_be_written_nothing_is_given_and_the_machine_may_ask_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.arm("gpu001")
    asked = "/boot/ipxe?" + urlencode({"serial": "EXAMPLE-000001", "mac": "02:00:00:00:01:00"})

    def full(*_: object) -> None:
        raise BedplateError("ledger: no space left on the disk")

    with server(place) as client:
        with monkeypatch.context() as changed:
            changed.setattr(place.ledger, "append", full)
            for path in (asked, f"/seed/gpu001/{place.token('gpu001')}/user-data"):
                assert client.ask("GET", path) == (503, b"ledger: no space left on the disk\n")
        assert client.boots("gpu001")


@pytest.mark.parametrize(
    ("phase", "minutes", "lasts", "said"),
    [
        (Phase.BOOTING, 3, "3 min", ""), (Phase.BOOTING, 16, "16 min", "stuck for 16 min"),
        (Phase.INSTALLING, 125, "2 h 5 min", "stuck for 125 min"), (Phase.REPORTED, 31, "31 min", "stuck for 31 min"),
        (Phase.ARMED, 60, "1 h 0 min", ""), (Phase.ARMED, 300, "5 h 0 min", "expired"),
        (Phase.STOPPED, 1, "1 min", "needs a person"), (Phase.FAILED, 4000, "2 d", "needs a person"),
        (Phase.VERIFIED, 9000, "6 d", ""),
    ],
)  # fmt: skip
def test_the_status_says_for_how_long_a_machine_is_somewhere_and_what_is_stuck(
    phase: Phase, minutes: int, lasts: str, said: str
) -> None:
    since = datetime(2026, 11, 30, 12, tzinfo=UTC)
    install_ = Install(phase, since=protocol.stamp(since), until=protocol.stamp(since + timedelta(hours=4)))
    later = since + timedelta(minutes=minutes)
    assert (protocol.lasted(install_, later), protocol.stuck(install_, later)) == (lasts, said)


def test_a_machine_in_the_middle_of_its_installation_is_not_armed_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.arm("gpu001", "gpu002")
    with server(place) as client:
        client.boots("gpu001")
        client.seed("gpu001")
    monkeypatch.setattr("bedplate.cli.netboot.netboot_secrets", lambda *_: SECRETS)
    monkeypatch.setattr("bedplate.cli.netboot.rendered", lambda *_: (place.files, place.index))
    monkeypatch.setattr("bedplate.cli.netboot.file_faults", lambda *_: [])
    words = ["arm", "A", "--nodes", "gpu[001-002]", "--approved-by", "Ann", "--yes", "--dir", str(place.folder)]
    before = place.token("gpu001")
    done = CliRunner().invoke(netboot, words, obj=place.site.root)
    assert isinstance(done.exception, Refused)
    assert str(done.exception) == (
        "netboot arm: being installed now: gpu001 (wait, or: bedplate netboot disarm --nodes NODESET)"
    )
    assert (place.token("gpu001"), place.phase("gpu001")) == (before, Phase.SEEDED)


def test_status_lists_what_was_armed_and_a_rollout_arms_nothing(place: Place) -> None:
    place.arm("gpu001")
    place.ledger.append(Draft("node.done", ("node:gpu002",), {}, "sha256:" + "a" * 64))

    def listed(*words: str) -> list[list[str]]:
        said = CliRunner().invoke(netboot, ["status", *words], obj=place.site.root, catch_exceptions=False).output
        return [line.split("\t")[:2] for line in said.splitlines()[1:]]

    assert listed() == [["gpu001", "armed"]]
    assert listed("--nodes", "gpu[001-003]") == [["gpu001", "armed"], ["gpu002", "not armed"], ["gpu003", "not armed"]]


def test_waiting_for_a_node_that_is_not_armed_says_how_to_arm_it(place: Place) -> None:
    done = CliRunner().invoke(netboot, ["wait", "--nodes", "gpu003"], obj=place.site.root)
    assert str(done.exception) == (
        "not installed:\n  gpu003: not armed: arm it: bedplate netboot arm ENV --nodes gpu003 --approved-by NAME"
    )
