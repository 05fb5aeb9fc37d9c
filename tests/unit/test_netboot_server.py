"""The boot server over real HTTP: one installation for one arming, everything recorded, and nothing lost by kill -9."""

# ruff: noqa: E501  tables stand in one line

import http.client
import json
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bedplate.act import firstcontact
from bedplate.act.arming import arm, armed_files, disarm
from bedplate.act.bootserver import BootServer, serving
from bedplate.cli.netboot import netboot
from bedplate.decide.netboot.knownhosts import with_key
from bedplate.decide.netboot.protocol import KINDS, Phase, fold_installs
from bedplate.ledger.store import Ledger
from bedplate.model.event import Draft
from bedplate.model.faults import NodesFailed, Refused
from bedplate.sources.site import Site, open_site
from bedplate.ssh import Answer
from unit.autoinstall_sample import KEY
from unit.netboot_sample import recipe, write_example
from unit.site_sample import replace_in

pytestmark = pytest.mark.slow  # every test starts programs

NODES = ["gpu001", "gpu002", "ctl1"]
LONG_S = 60  # far above what any of it takes


class Place:
    """A site, a boot server's directory, a ledger, and a clock that can be set forward."""

    def __init__(self, root: Path) -> None:
        write_example(root / "site")
        replace_in(root / "site/fleet.yml", "example: true", "example: false")
        self.site: Site = open_site(root / "site")
        self.folder = root / "netboot"
        self.ledger = Ledger.open(self.site.ledger_url, actor="ann@ctl")
        self.later = timedelta(0)
        self.made = recipe(self.site)
        nodes = self.made.nodes(NODES)
        self.files = {f"nodes/{n.name}/{k}": v.encode() for n in nodes for k, v in self.made.files(n).items()}
        self.index = self.made.index(nodes)

    def now(self) -> datetime:
        return datetime.now(UTC) + self.later

    def arm(self, *names: str) -> None:
        index = self.index | {"nodes": {name: self.index["nodes"][name] for name in names}}
        arm(self.ledger, self.folder, self.files, index, until=self.now() + timedelta(hours=4), approved_by="Ann")

    def boot(self) -> BootServer:
        return BootServer(
            self.site, self.folder, self.ledger, clock=self.now, tftp_log=self.folder.parent / "dnsmasq.log"
        )

    def phase(self, name: str) -> Phase:
        return fold_installs(self.ledger.events(kinds=KINDS))[name].phase

    def token(self, name: str) -> str:
        files = armed_files(self.folder, name)
        assert files is not None
        return files.token

    def refusals(self) -> list[str]:
        return [str(event.body["why"]) for event in self.ledger.events(kinds=["netboot.refused"])]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.ledger.close()


@contextmanager
def server(place: Place) -> Iterator["Client"]:
    with serving(place.boot(), "127.0.0.1", 0) as port:
        yield Client(port, place)


class Client:
    def __init__(self, port: int, place: Place) -> None:
        self.port, self.place = port, place

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LONG_S)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def boots(self, name: str) -> bool:
        """Whether a machine that asks is given the installer."""
        node = self.place.site.fleet.nodes[name]
        status, script = self.ask("GET", "/boot/ipxe?" + urlencode({"serial": node.serial, "mac": node.boot_mac}))
        assert status == 200
        assert script.startswith(b"#!ipxe\n")
        return b"autoinstall ds=nocloud;s=" in script

    def seed(self, name: str, file: str = "user-data", token: str | None = None) -> int:
        return self.ask("GET", f"/seed/{name}/{token or self.place.token(name)}/{file}")[0]

    def inventory(self, name: str, **changed: Any) -> tuple[int, bytes]:
        expected = self.place.index["nodes"][name]
        disks = [{"name": f"sd{i}", "serial": serial} for i, serial in enumerate(expected["boot_disk_serials"])]
        disks += [
            {"name": f"nvme{i}", "serial": f"X{i}"} for i in range((expected["disks"] or len(disks)) - len(disks))
        ]
        found = {
            "dmi": {"product_serial": expected["serial"]},
            "disks": disks,
            "nics": [{"mac": m} for m in (*expected["macs"], *expected["nic_macs"])],
        }
        body = json.dumps({"found": found | changed, "differences": []}).encode()
        return self.ask("POST", f"/inventory/{name}/{self.place.token(name)}", body)

    def report(self, name: str, stage: str, **more: str) -> int:
        body = json.dumps({"name": stage, "event_type": "finish", "result": "SUCCESS"} | more).encode()
        return self.ask("POST", f"/report/{name}/{self.place.token(name)}", body)[0]

    def finished(self, name: str, **said: Any) -> int:
        body = json.dumps({"status": "done", "errors": [], "recoverable": []} | said).encode()
        return self.ask("POST", f"/finished/{name}/{self.place.token(name)}", body)[0]

    def phone(self, name: str, key: str = KEY) -> int:
        body = urlencode({"pub_key_ed25519": key, "hostname": name}).encode()
        return self.ask("POST", f"/phone/{name}/{self.place.token(name)}", body)[0]


def test_an_armed_machine_installs_once_from_power_on_to_its_host_key(place: Place) -> None:
    place.arm("gpu001")
    hosts = place.folder / "tftp/grub/hosts"
    with server(place) as client:
        assert sorted(path.name for path in hosts.iterdir()) == ["02:00:00:00:01:00.cfg", "EXAMPLE-000001.cfg"]
        assert place.token("gpu001") in (hosts / "EXAMPLE-000001.cfg").read_text()
        assert client.boots("gpu001")
        assert client.boots("gpu001"), "the same boot asks again"
        for file in ("meta-data", "user-data", "vendor-data", "network-config"):
            assert client.seed("gpu001", file) == 200
        assert list(hosts.iterdir()) == []
        assert client.inventory("gpu001") == (200, b"")
        assert client.seed("gpu001") == 410, "a replay"
        assert client.report("gpu001", "subiquity/Install/install/deep/below") == 200
        assert client.report("gpu001", "bedplate/installed") == 200
        assert not client.boots("gpu001")
        assert client.ask("PUT", f"/upload/gpu001/{place.token('gpu001')}/logs.tar.gz", b"logs")[0] == 201
        assert client.phone("gpu001") == 200
        assert client.phone("gpu001") == 410
        assert not client.boots("gpu001")
    assert place.phase("gpu001") is Phase.REPORTED
    assert place.site.known_hosts_path.read_text() == f"gpu001,10.20.1.1 {' '.join(KEY.split()[:2])}\n"
    assert (place.folder / "logs/gpu001/logs.tar.gz").read_bytes() == b"logs"
    kinds = [event.kind for event in place.ledger.events(kinds=KINDS)]
    assert [kind for kind in kinds if kind not in ("netboot.asked", "netboot.refused")] == [
        "netboot.armed", "netboot.seeded", "netboot.inventory", "netboot.stage", "netboot.uploaded", "netboot.phoned",
    ]  # fmt: skip
    text = "".join(json.dumps(dict(event.body)) for event in place.ledger.events())
    assert place.token("gpu001") not in text


def test_a_machine_that_is_not_armed_boots_its_own_disk(place: Place) -> None:
    place.arm("gpu001")
    with server(place) as client:
        assert not client.boots("gpu002")
        assert client.ask("GET", "/boot/ipxe?serial=strange&mac=02:99:00:00:00:00")[1].startswith(b"#!ipxe")
        disarm(place.ledger, ["gpu001"], {}, why="a mistake")
        assert not client.boots("gpu001")
        assert client.seed("gpu001") == 403
    place.boot().publish()
    assert list((place.folder / "tftp/grub/hosts").iterdir()) == []
    assert any("no machine has serial 'strange'" in why for why in place.refusals())


def test_a_machine_that_comes_back_before_it_reported_is_held(place: Place) -> None:
    place.arm("gpu001", "gpu002")
    with server(place) as client:
        assert client.boots("gpu001")
        assert client.seed("gpu001") == 200
        assert not client.boots("gpu001")
        assert place.phase("gpu001") is Phase.HELD
        assert client.inventory("gpu001")[0] == 410
        assert client.boots("gpu002")
        place.later = timedelta(minutes=10)
        assert not client.boots("gpu002")
        assert place.phase("gpu002") is Phase.HELD
        place.arm("gpu001")
        assert client.boots("gpu001")


def test_a_wrong_disk_stops_one_machine_and_not_the_other(place: Place) -> None:
    place.arm("gpu001", "gpu002")
    with server(place) as client:
        for name in ("gpu001", "gpu002"):
            assert client.boots(name)
            assert client.seed(name) == 200
        disks = [{"name": f"d{i}", "serial": f"Y{i}"} for i in range(10)]
        status, why = client.inventory("gpu001", disks=disks)
        assert status == 409
        assert b"boot disk EXM2A000001: 0 disks have that serial number (there: d0 Y0, d1 Y1, d2 Y2, " in why
        assert client.inventory("gpu002")[0] == 200
        assert client.report("gpu001", "bedplate/installed") == 410
        assert client.ask("PUT", f"/upload/gpu001/{place.token('gpu001')}/why.tar.gz", b"x")[0] == 201
    assert (place.phase("gpu001"), place.phase("gpu002")) == (Phase.STOPPED, Phase.CHECKED)


def test_what_is_refused_is_recorded_once(place: Place) -> None:
    place.arm("gpu001")
    other = "x" * 43
    with server(place) as client:
        token = place.token("gpu001")
        for _ in range(3):
            assert client.seed("gpu001", token=other) == 403
        assert client.ask("GET", "/files/../armed/gpu001/index.json")[0] == 400
        assert client.ask("GET", "/files/%2e%2e%2farmed")[0] == 400
        assert client.ask("GET", f"/report/gpu001/{token}")[0] == 405
        assert client.ask("POST", f"/report/gpu001/{token}", b"x" * ((1 << 20) + 1))[0] == 413
        assert client.ask("PUT", f"/upload/gpu001/{other}/x", b"x")[0] == 403
        assert client.ask("POST", f"/report/gpu001/{token}", b"[1]")[0] == 400
        assert client.ask("POST", f"/report/nobody/{token}", b"{}")[0] == 403
        assert client.phone("gpu001") == 409
    told = place.refusals()
    assert told.count("the token is of no arming of this node") == 3, "of a seed, an upload, and a node nobody knows"
    assert token not in "".join(json.dumps(dict(event.body)) for event in place.ledger.events())


def test_a_body_without_a_length_and_one_that_ends_early_are_refused(place: Place) -> None:
    place.arm("gpu001")
    with server(place) as client:
        client.boots("gpu001")
        client.seed("gpu001")
        path = f"/upload/gpu001/{place.token('gpu001')}/x"
        for head, wanted in (("Transfer-Encoding: chunked", b" 411 "), ("Content-Length: 100", b" 400 ")):
            with socket.create_connection(("127.0.0.1", client.port), timeout=LONG_S) as raw:
                raw.sendall(f"PUT {path} HTTP/1.1\r\nHost: x\r\n{head}\r\n\r\nabc".encode())
                raw.shutdown(socket.SHUT_WR)
                assert wanted in raw.recv(65536)
    assert [path.name for path in (place.folder / "logs/gpu001").iterdir()] == []


def test_a_file_is_served_whole_and_a_link_is_not_followed(place: Place) -> None:
    with server(place) as client:
        (place.folder / "files/vmlinuz").write_bytes(b"k" * 300_000)
        (place.folder / "files/passwd").symlink_to("/etc/passwd")
        assert client.ask("GET", "/files/vmlinuz") == (200, b"k" * 300_000)
        assert client.ask("HEAD", "/files/vmlinuz") == (200, b"")
        assert client.ask("GET", "/files/passwd")[0] == 404
        assert client.ask("GET", "/boot.ipxe")[1].startswith(b"#!ipxe")


def test_files_of_another_arming_are_not_served(place: Place) -> None:
    place.arm("gpu001")
    index = place.folder / "armed/gpu001/index.json"
    index.write_text(json.dumps(json.loads(index.read_text()) | {"token": "y" * 43}))
    with server(place) as client:
        assert not client.boots("gpu001")
        assert client.seed("gpu001") == 403
        assert list((place.folder / "tftp/grub/hosts").iterdir()) == []


def test_many_machines_at_once_are_each_answered(place: Place) -> None:
    place.arm("gpu001", "gpu002")
    with server(place) as client, ExitStack() as stack:
        answers: list[bool] = []
        names = ["gpu001", "gpu002", "gpu003", "cpu01"] * 12
        threads = [threading.Thread(target=lambda name=name: answers.append(client.boots(name))) for name in names]
        for thread in threads:
            thread.start()
            stack.callback(thread.join)
        stack.close()
    assert (len(answers), sum(answers)) == (48, 24)


@pytest.mark.slow
def test_a_killed_server_goes_on_where_it_was(place: Place) -> None:
    """In a process of its own, which is killed between the seed and the inventory."""
    place.arm("gpu001")
    place.ledger.close()

    def start() -> tuple[subprocess.Popen[str], Client]:
        argv = [sys.executable, "-m", "bedplate", "--site", str(place.site.root), "netboot", "serve", "--json"]
        process = subprocess.Popen(
            [*argv, "--dir", place.folder, "--address", "127.0.0.1", "--port", "0"], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        lines = [process.stdout.readline()]
        while lines[-1].strip() not in ("}", ""):
            lines.append(process.stdout.readline())
        return process, Client(json.loads("".join(lines))["port"], place)

    process, client = start()
    assert client.boots("gpu001")
    assert client.seed("gpu001") == 200
    process.kill()
    process.communicate()
    process, client = start()
    assert client.inventory("gpu001")[0] == 200
    assert client.report("gpu001", "bedplate/installed") == 200
    assert client.phone("gpu001") == 200
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=LONG_S)
    assert process.returncode == 0
    with Ledger.read(place.site.ledger_url) as ledger:
        assert fold_installs(ledger.events(kinds=KINDS))["gpu001"].phase is Phase.REPORTED
        assert ledger.verify() == []


def test_status_says_where_each_machine_is(place: Place) -> None:
    place.arm("gpu001", "gpu002")
    with server(place) as client:
        client.boots("gpu001")
        client.seed("gpu001")
        client.boots("gpu001")
    done = CliRunner().invoke(netboot, ["status"], obj=place.site.root, standalone_mode=False)
    rows = [line.split("\t") for line in done.output.splitlines()[1:]]
    assert [(row[0], row[1], row[5]) for row in rows] == [("gpu001", "held", "needs a person"), ("gpu002", "armed", "")]
    done = CliRunner().invoke(
        netboot, ["status", "--nodes", "gpu002", "--json"], obj=place.site.root, standalone_mode=False
    )
    assert list(json.loads(done.output)) == ["gpu002"]


def test_disarm_takes_the_token_away_and_arm_refuses_the_example(place: Place, tmp_path: Path) -> None:
    place.arm("gpu001")
    words = ["disarm", "--nodes", "gpu[001-002]", "--reason", "wrong rack", "--dir", str(place.folder)]
    done = CliRunner().invoke(netboot, words, obj=place.site.root, standalone_mode=False)
    assert done.output == "disarmed: gpu001\n"
    assert not (place.folder / "armed/gpu001").exists()
    assert place.phase("gpu001") is Phase.IDLE
    write_example(tmp_path / "example")
    words = ["arm", "A", "--nodes", "gpu001", "--approved-by", "Ann"]
    refused = CliRunner().invoke(netboot, words, obj=tmp_path / "example", standalone_mode=False)
    assert isinstance(refused.exception, Refused)


def test_a_host_key_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    text = "# ours\nn1,10.0.0.1 ssh-ed25519 OLD\nn2 ssh-ed25519 X\n[n1]:2222 ssh-ed25519 Y\n@revoked n1 ssh-rsa Z\n"
    assert with_key(text, ["n1", "10.0.0.1"], "ssh-ed25519 NEW") == (
        "# ours\nn2 ssh-ed25519 X\n[n1]:2222 ssh-ed25519 Y\nn1,10.0.0.1 ssh-ed25519 NEW\n"
    )
    assert with_key("", ["n1"], "K", port=2222) == "[n1]:2222 K\n"


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    method=st.sampled_from(["GET", "POST", "PUT"]),
    what=st.sampled_from(["report", "inventory", "phone", "upload", "seed", "boot/ipxe?mac=&serial=", "files"]),
    token=st.booleans(),
    body=st.binary(max_size=100) | st.recursive(
        st.none() | st.integers() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["found", "disks", "nics", "dmi", "name", "result", "differences"]), inner, max_size=4),
    ).map(lambda value: json.dumps(value).encode()),
)  # fmt: skip
def test_whatever_a_machine_sends_the_server_answers(
    running: Client,
    method: str,
    what: str,
    token: bool,
    body: bytes,
) -> None:
    word = running.place.token("gpu001") if token else "z" * 43
    path = (
        f"/{what}" if "?" in what else f"/{what}/gpu001/{word}" + ("/user-data" if what in ("seed", "upload") else "")
    )
    status, _ = running.ask(method, path, body if method != "GET" else None)
    assert status < 500


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    place = Place(tmp_path_factory.mktemp("fuzz"))
    place.arm("gpu001")
    with server(place) as client:
        yield client
    place.ledger.close()
    shutil.rmtree(place.folder)


def install(place: Place, client: Client, name: str) -> None:
    """From the armed machine to its first word."""
    assert client.boots(name)
    assert client.seed(name) == 200
    assert client.inventory(name)[0] == 200
    assert client.report(name, "bedplate/installed") == 200
    assert client.phone(name) == 200


def test_after_its_first_word_a_machine_says_once_how_its_first_boot_ended(place: Place) -> None:
    place.arm("gpu001", "gpu002")
    with server(place) as client:
        assert client.finished("gpu001") == 409, "nothing has booted yet"
        install(place, client, "gpu001")
        assert client.finished("gpu001", recoverable=["WARNING: old key"]) == 200
        assert client.finished("gpu001") == 410
        assert client.phone("gpu001") == 410
        install(place, client, "gpu002")
        assert client.ask("POST", "/finished/gpu002/" + "x" * 43, b"{}")[0] == 403
        assert client.finished("gpu002", status="error", errors=["no package x"]) == 200
    first, second = (fold_installs(place.ledger.events(kinds=KINDS))[name] for name in ("gpu001", "gpu002"))
    assert (first.phase, first.why) == (Phase.FINISHED, "recoverable: WARNING: old key")
    assert (second.phase, second.why) == (Phase.BROKEN, "no package x")


def test_the_last_steps_are_folded_from_a_rollout_of_the_same_environment(place: Place) -> None:
    place.arm("gpu001")
    with server(place) as client:
        install(place, client, "gpu001")
        client.finished("gpu001")
    now = fold_installs(place.ledger.events(kinds=KINDS))["gpu001"]
    identity = str(now.environment)
    node = ("node:gpu001",)

    def phase(kind: str, body: dict[str, Any], environment: str | None = identity) -> Phase:
        place.ledger.append(Draft(kind, node, body, environment))
        return place.phase("gpu001")

    assert phase("netboot.confirmed", {"host_key": "ssh-ed25519 another"}) is Phase.FINISHED
    assert phase("netboot.confirmed", {"host_key": now.host_key}) is Phase.CONFIRMED
    assert phase("node.verified", {"verdict": "PASS"}, "sha256:" + "0" * 64) is Phase.CONFIRMED
    assert phase("node.verified", {"verdict": "FAIL"}) is Phase.CONFIRMED
    assert phase("node.verified", {"verdict": "PASS"}) is Phase.CONFIRMED, "not converged yet"
    assert phase("node.done", {"manifest_sha256": "sha256:" + "1" * 64}) is Phase.VERIFIED


def test_a_machine_that_comes_by_grub_is_seen_in_the_log_of_tftp_and_held_too(place: Place) -> None:
    place.arm("gpu001")
    hosts = place.folder / "tftp/grub/hosts"
    log = place.folder.parent / "dnsmasq.log"
    address = place.site.fleet.nodes["gpu001"].address
    line = f"Nov 30 02:51:12 dnsmasq-tftp[7]: sent {place.folder}/tftp/grub/grub.cfg to {address}\n"
    log.write_text(line)  # of before the server began
    boot = place.boot()
    boot.heard()
    assert place.phase("gpu001") is Phase.ARMED
    with log.open("a") as file:
        file.write("Nov 30 02:52:00 dnsmasq-tftp[7]: sent /x/grub/grub.cfg to 10.9.9.9\n" + line + line[:30])
    boot.heard()
    boot.publish()
    assert place.phase("gpu001") is Phase.BOOTING
    assert list(hosts.iterdir()), "the same boot may ask again"
    place.later = timedelta(minutes=10)
    boot.publish()
    assert list(hosts.iterdir()) == [], "withdrawn before it comes back"
    with log.open("a") as file:
        file.write(line[30:])
    boot.heard()
    assert place.phase("gpu001") is Phase.HELD


def test_waiting_ends_where_a_machine_needs_a_person_and_where_all_are_there(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.arm("gpu001", "gpu002")
    with server(place) as client:
        install(place, client, "gpu001")
        client.finished("gpu001")
    asked: list[str] = []

    def logged_in(targets: list[Any], command: str, *, timeout_s: float) -> Iterator[Answer]:
        for target in targets:
            asked.append(target.known_hosts.read_text())
            yield Answer(target.name, 0, b"boot-1\n", b"", None)

    monkeypatch.setattr(firstcontact, "run_everywhere", logged_in)
    done = CliRunner().invoke(netboot, ["wait", "--nodes", "gpu001", "--timeout", "60"], obj=place.site.root)
    assert done.exception is None, done.output
    assert len(asked) == 1
    assert KEY.split()[1] in asked[0], "the reported key and no other"
    assert place.phase("gpu001") is Phase.CONFIRMED
    disarm(place.ledger, ["gpu002"], fold_installs(place.ledger.events(kinds=KINDS)), why="wrong rack")
    done = CliRunner().invoke(netboot, ["wait", "--nodes", "gpu[001-002]"], obj=place.site.root)
    assert isinstance(done.exception, NodesFailed)
    assert "gpu002: not armed: wrong rack" in str(done.exception)
    said = CliRunner().invoke(netboot, ["status"], obj=place.site.root).output.splitlines()
    assert said[0].split("\t") == ["node", "is", "environment", "since", "for", "", "what"]
