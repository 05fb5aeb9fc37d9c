"""What a boot server answers, from events, a request and the time: no machine is installed by mistake, or twice."""

# ruff: noqa: E501  tables stand in one line

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bedplate.decide.netboot import protocol
from bedplate.decide.netboot.hardware import differences
from bedplate.decide.netboot.protocol import (
    Boot,
    Install,
    Machines,
    Phase,
    Refusal,
    Request,
    armed,
    arming,
    boot_answer,
    fold_installs,
    hash_token,
    host_key,
    inventory_refusal,
    noteworthy,
    parse_request,
    phone_refusal,
    recorded,
    refused,
    seed_refusal,
    size_refusal,
    token_refusal,
    upload_refusal,
)  # fmt: skip
from bedplate.model.event import GENESIS, Draft, Event, body_bytes, seal
from unit.autoinstall_sample import KEY

START = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)
TOKEN = "a-token-of-forty-three-characters-in-a-url_"
OTHER = "b-token-of-forty-three-characters-in-a-url_"
A = {"name": "A", "identity": "sha256:" + "a" * 64}
EXPECTED = {"serial": "SN-1", "macs": ["02:00:00:00:01:00"], "boot_disk_serials": ["DISK-1", "DISK-2"], "disks": 3}


def events(*drafts: tuple[int, Draft]) -> list[Event]:
    """Events at seconds after START."""
    made: list[Event] = []
    for number, (second, draft) in enumerate(drafts, 1):
        at = protocol.stamp(START + timedelta(seconds=second))
        made.append(seal(draft, body_bytes(draft.body), id=number, at=at, actor="ann@ctl", previous=GENESIS))
    return made


def arm(token: str = TOKEN, hours: int = 4) -> Draft:
    return arming(
        "n1", A, token=token, until=START + timedelta(hours=hours), wipes=["DISK-1", "DISK-2"], approved_by="Ann"
    )


def said(kind: str, **body: Any) -> Draft:
    return recorded(kind, "n1", Install(environment=A["identity"]), **body)


ASKED = said("asked", answer="install", address="10.0.0.5")
SEEDED = said("seeded", name="user-data", address="10.0.0.5")
FITS = said("inventory", differences=[])
STAGE = said("stage", name="subiquity/Install", event_type="start")
INSTALLED = said("stage", name="bedplate/installed", event_type="finish", result="SUCCESS")
FAILED = said("stage", name="subiquity/Install/install", event_type="finish", result="FAIL", description="no mirror")
PHONED = said("phoned", host_key=KEY, address="10.0.0.5")


def after(*drafts: tuple[int, Draft]) -> Install:
    return fold_installs(events(*drafts)).get("n1", Install())


def at(second: int) -> datetime:
    return START + timedelta(seconds=second)


STORY = [(0, arm()), (60, ASKED), (120, SEEDED), (130, FITS), (140, STAGE), (900, INSTALLED), (1100, PHONED)]


def test_an_installation_goes_through_its_phases() -> None:
    phases = [after(*STORY[:count]).phase for count in range(len(STORY) + 1)]
    assert phases == [
        Phase.IDLE, Phase.ARMED, Phase.BOOTING, Phase.SEEDED, Phase.CHECKED, Phase.INSTALLING, Phase.INSTALLED,
        Phase.REPORTED,
    ]  # fmt: skip
    done = after(*STORY)
    assert (done.host_key, done.address, done.armed_by, done.name) == (KEY, "10.0.0.5", "ann@ctl", "A")


def test_what_is_not_armed_boots_its_own_disk() -> None:
    assert boot_answer(Install(), START)[0] is Boot.LOCAL
    assert boot_answer(after((0, arm(hours=1))), at(3601))[0] is Boot.LOCAL
    assert boot_answer(after((0, arm()), (1, said("disarmed", why="a mistake"))), at(2))[0] is Boot.LOCAL


def test_an_armed_machine_installs_once_and_is_held_when_it_comes_back() -> None:
    assert boot_answer(after(*STORY[:1]), at(60))[0] is Boot.INSTALL
    assert boot_answer(after(*STORY[:2]), at(100))[0] is Boot.INSTALL, "the same boot asks again"
    assert boot_answer(after(*STORY[:2]), at(400))[0] is Boot.HELD
    for count in (3, 4, 5):
        answer, why = boot_answer(after(*STORY[:count]), at(141))
        assert answer is Boot.HELD
        assert "came back to the network before it had reported" in why
    held = after(*STORY[:5], (500, said("held", why="came back")))
    assert boot_answer(held, at(501)) == (Boot.HELD, "came back")
    assert token_refusal(held, TOKEN, at(501)) == Refusal(410, "the token was used: held")


def test_an_installed_machine_is_disarmed_by_its_own_report() -> None:
    for count in (6, 7):
        assert boot_answer(after(*STORY[:count]), at(1200))[0] is Boot.LOCAL
        assert not armed(after(*STORY[:count]), at(1200))


def test_a_machine_that_was_held_is_armed_anew_by_a_person_only() -> None:
    held = [*STORY[:5], (500, said("held", why="came back"))]
    assert boot_answer(after(*held, (600, ASKED), (601, SEEDED), (602, PHONED)), at(603))[0] is Boot.HELD
    assert boot_answer(after(*held, (600, arm(OTHER))), at(603))[0] is Boot.INSTALL


def test_a_token_opens_its_own_arming_and_no_other() -> None:
    now = after((0, arm()))
    assert token_refusal(now, TOKEN, at(1)) is None
    assert token_refusal(now, OTHER, at(1)) == Refusal(403, "the token is of no arming of this node")
    assert token_refusal(now, "\udcff", at(1)) == Refusal(403, "the token is of no arming of this node")
    again = after((0, arm()), (5, arm(OTHER)))
    assert token_refusal(again, TOKEN, at(6)) == Refusal(403, "the token is of no arming of this node")
    assert token_refusal(Install(), TOKEN, at(1)) == Refusal(403, "the token is of no arming of this node")
    assert token_refusal(after((0, arm(hours=1))), TOKEN, at(3601)) == Refusal(
        410, "armed until 2026-11-30T13:00:00.000000Z"
    )


def test_the_end_of_an_arming_does_not_end_an_installation_that_began() -> None:
    now = after((0, arm(hours=1)), (3500, ASKED), (3590, SEEDED))
    assert inventory_refusal(now, TOKEN, at(3700)) is None
    assert token_refusal(now, TOKEN, at(3590 + protocol.INSTALL_LIMIT_S + 1)) == Refusal(
        410, "the installation began 2026-11-30T12:59:50.000000Z, and did not end"
    )


def test_a_seed_goes_to_one_address_and_is_no_replay() -> None:
    assert seed_refusal(after(*STORY[:1]), TOKEN, "10.0.0.5", at(1)) is None
    assert seed_refusal(after(*STORY[:3]), TOKEN, "10.0.0.5", at(121)) is None
    assert seed_refusal(after(*STORY[:3]), TOKEN, "10.0.0.6", at(121)) == Refusal(403, "the seed went to 10.0.0.5")
    for count in range(4, 7):
        assert seed_refusal(after(*STORY[:count]), TOKEN, "10.0.0.5", at(1000)) == Refusal(
            410, f"the seed was fetched: {after(*STORY[:count]).phase}"
        )
    assert seed_refusal(after(*STORY), TOKEN, "10.0.0.5", at(1200)) == Refusal(410, "the token was used: first boot")


def test_a_difference_stops_and_disarms_and_the_machine_may_still_send_its_logs() -> None:
    stopped = after(
        *STORY[:3], (130, said("inventory", differences=["boot disk DISK-1: 0 disks", "2 disks, expected 3"]))
    )
    assert (stopped.phase, stopped.why) == (Phase.STOPPED, "boot disk DISK-1: 0 disks; 2 disks, expected 3")
    assert boot_answer(stopped, at(140))[0] is Boot.LOCAL
    assert phone_refusal(stopped, TOKEN, at(140)) is not None
    assert upload_refusal(stopped, TOKEN, at(140)) is None
    assert upload_refusal(stopped, OTHER, at(140)) is not None


def test_a_first_boot_is_believed_once_and_after_an_inventory() -> None:
    for count in (1, 2, 3):
        assert phone_refusal(after(*STORY[:count]), TOKEN, at(200)) is not None
    for count in (4, 5, 6):
        assert phone_refusal(after(*STORY[:count]), TOKEN, at(1000)) is None
    assert phone_refusal(after(*STORY), TOKEN, at(1200)) == Refusal(410, "the token was used: first boot")


def test_a_failure_is_kept_and_its_logs_are_taken_up_to_a_number() -> None:
    failed = after(*STORY[:5], (200, FAILED), (201, STAGE), (202, INSTALLED))
    assert (failed.phase, failed.stage, failed.why) == (Phase.FAILED, "subiquity/Install/install", "no mirror")
    assert boot_answer(failed, at(300))[0] is Boot.LOCAL
    assert upload_refusal(failed, TOKEN, at(300)) is None
    full = after(*STORY[:5], *[(200, said("uploaded", name="x"))] * protocol.MOST_UPLOADS)
    assert upload_refusal(full, TOKEN, at(300)) == Refusal(429, "8 files are enough")


def test_no_stage_is_an_installation_before_the_inventory_fits() -> None:
    assert after(*STORY[:3], (125, STAGE), (126, INSTALLED)).phase is Phase.SEEDED


# --- who asks ------------------------------------------------------------------------------------------------

MACHINES = Machines.of(
    {"nodes": {"n1": EXPECTED, "n2": {"serial": "SN-2", "macs": ["02:00:00:00:02:00", "02:00:00:00:02:01"]}}}
)


@pytest.mark.parametrize(
    ("serial", "mac", "name", "why"),
    [
        ("SN-1", "02:00:00:00:01:00", "n1", ""),
        ("SN-2", "02-00-00-00-02-01", "n2", ""),
        (" SN-1 ", "", "n1", ""),
        ("", "02:00:00:00:02:00", "n2", ""),
        ("SN-1", "02:00:00:00:02:00", None, "a swapped cable or adapter"),
        ("SN-1", "02:00:00:00:09:00", None, "of no port of it"),
        ("To be filled by O.E.M.", "02:00:00:00:01:00", None, "which has another serial"),
        ("a/b", "x", None, "no machine has serial"),
        ("", "", None, "no machine has serial"),
    ],
)
def test_a_machine_is_known_by_its_serial_and_its_macs_together(
    serial: str, mac: str, name: str | None, why: str
) -> None:
    found, said_ = MACHINES.named(serial, mac)
    assert found == name
    assert why in said_


def inventory(**changed: Any) -> dict[str, Any]:
    disks = [
        {"name": "sda", "serial": "DISK-1"},
        {"name": "sdb", "serial": "X_DISK-2"},
        {"name": "nvme0n1", "serial": None},
    ]
    return {"dmi": {"product_serial": "SN-1"}, "disks": disks, "nics": [{"mac": "02:00:00:00:01:00"}]} | changed


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (inventory(), []),
        (inventory(dmi={"product_serial": "SN-2"}), ["serial number 'SN-2', expected 'SN-1'"]),
        (inventory(dmi=None), ["serial number 'None', expected 'SN-1'"]),
        (inventory(nics=[]), ["no interface with MAC 02:00:00:00:01:00"]),
        (inventory(disks=inventory()["disks"][1:]), ["boot disk DISK-1: 0 disks have that serial number (there: sdb X_DISK-2, nvme0n1 without one)", "2 disks, expected 3"]),
        (inventory(disks=[{"name": "a", "serial": "DISK-1"}, {"name": "b", "serial": "DISK-1DISK-2"}, {}]), ["boot disk DISK-1: 2 disks have that serial number (there: a DISK-1, b DISK-1DISK-2)"]),
        ([], ["the inventory cannot be read"]),
        (None, ["the inventory cannot be read"]),
        ({"disks": 1, "nics": []}, ["the inventory cannot be read"]),
    ],
)  # fmt: skip
def test_an_inventory_is_compared_with_what_the_fleet_says(found: object, told: list[str]) -> None:
    assert differences(EXPECTED, found) == told


def test_a_host_key_is_a_public_key_and_nothing_else() -> None:
    assert host_key(KEY + " root@n1\n") == " ".join(KEY.split()[:2])
    for wrong in ("", "ssh-rsa AAAA", KEY + "\nevil ssh-rsa AAAA", "x " + KEY, "ssh-ed25519 AAAA"):
        assert host_key(wrong) is None


# --- what is asked ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "target", "request_"),
    [
        ("GET", f"/seed/n1/{TOKEN}/user-data", Request("seed", "n1", TOKEN, "user-data")),
        ("GET", "/boot/ipxe?mac=02%3a00&serial=a%20b", Request("boot", query={"mac": "02:00", "serial": "a b"})),
        ("GET", "/boot.ipxe", Request("menu", name="boot.ipxe")),
        ("GET", "/files/vmlinuz-6.8", Request("files", name="vmlinuz-6.8")),
        ("HEAD", "/files/vmlinuz", Request("files", name="vmlinuz")),
        ("POST", f"/report/n1/{TOKEN}", Request("report", "n1", TOKEN)),
        ("POST", f"/inventory/n1/{TOKEN}", Request("inventory", "n1", TOKEN)),
        ("PUT", f"/upload/n1/{TOKEN}/logs.tar.gz", Request("upload", "n1", TOKEN, "logs.tar.gz")),
        ("POST", f"/phone/n1/{TOKEN}", Request("phone", "n1", TOKEN)),
    ],
)  # fmt: skip
def test_a_request_is_read(method: str, target: str, request_: Request) -> None:
    assert parse_request(method, target) == request_


@pytest.mark.parametrize(
    ("method", "target", "status"),
    [
        ("GET", "/files/../etc/passwd", 400), ("GET", "/files/%2e%2e/x", 400), ("GET", "/files/..%2fx", 400),
        ("GET", "/files/a%5cb", 400), ("GET", "/files//x", 400), ("GET", "/files/%00", 400), ("GET", "files/x", 400),
        ("GET", "/files/%ff", 400), ("GET", "/files/.hidden", 404), ("GET", "/" + "a" * 3000, 414), ("GET", "/", 400),
        ("GET", "/secrets", 404), ("DELETE", "/files/x", 405), ("GET", f"/report/n1/{TOKEN}", 405),
        ("GET", f"/seed/n1/{TOKEN}/shadow", 404), ("GET", f"/seed/N1/{TOKEN}/user-data", 404),
        ("GET", "/seed/n1/short/user-data", 404), ("PUT", f"/upload/n1/{TOKEN}/../x", 400),
        ("PUT", f"/upload/n1/{TOKEN}/a b", 404), ("GET", "/boot/pxe", 404), ("GET", "/files/x?a=" + "&a=" * 20, 400),
    ],
)  # fmt: skip
def test_a_request_that_leads_elsewhere_is_refused(method: str, target: str, status: int) -> None:
    found = parse_request(method, target)
    assert isinstance(found, Refusal)
    assert found.status == status


@pytest.mark.parametrize(
    ("what", "length", "status"),
    [("phone", "100", None), ("phone", "65537", 413), ("report", None, 411), ("report", "-1", 411), ("upload", "1e9", 411),
     ("upload", str((64 << 20) + 1), 413), ("upload", str(64 << 20), None)],
)  # fmt: skip
def test_a_body_has_a_length_and_is_not_too_long(what: str, length: str | None, status: int | None) -> None:
    found = size_refusal(what, length)
    assert (found.status if found else None) == status


def test_a_token_is_never_recorded() -> None:
    assert TOKEN not in str(arm())
    assert arm().body["token_sha256"] == hash_token(TOKEN)
    draft = refused(Refusal(403, "no"), asked="seed of n1", address="10.0.0.9", node="n1")
    assert draft.subjects == ("node:n1",)
    assert refused(Refusal(403, "no"), asked="x", address="10.0.0.9").subjects == ("address:10.0.0.9",)


# --- properties ------------------------------------------------------------------------------------------------

KINDS = [
    ASKED, SEEDED, FITS, said("inventory", differences=["x"]), STAGE, INSTALLED, FAILED, PHONED, said("held", why="x"),
    said("uploaded", name="x"), said("disarmed", why="x"), said("unheard", of=1), said("asked", answer="local"),
]  # fmt: skip
STEPS = st.lists(st.tuples(st.integers(0, 20_000), st.sampled_from([*KINDS, arm(), arm(OTHER)])), max_size=12)


@settings(max_examples=100, deadline=None)
@given(steps=STEPS, second=st.integers(0, 40_000))
def test_whatever_happened_no_machine_installs_that_nobody_armed_last(
    steps: list[tuple[int, Draft]], second: int
) -> None:
    install = after(*steps)
    if boot_answer(install, at(second))[0] is Boot.INSTALL:
        assert second <= 4 * 3600
        since = [draft.kind for _, draft in steps]
        last = len(since) - 1 - since[::-1].index("netboot.armed")
        behind = steps[last + 1 :]
        ends = ("netboot.seeded", "netboot.phoned", "netboot.held", "netboot.disarmed")
        assert not [draft for _, draft in behind if draft.kind in ends or draft.body.get("differences")], since


@settings(max_examples=100, deadline=None)
@given(steps=STEPS, second=st.integers(0, 40_000), token=st.sampled_from([TOKEN, OTHER]) | st.text(max_size=50))
def test_whatever_happened_only_the_last_token_opens_anything(
    steps: list[tuple[int, Draft]], second: int, token: str
) -> None:
    install = after(*steps)
    armings = [draft.body["token_sha256"] for _, draft in steps if draft.kind == "netboot.armed"]
    answers = [
        token_refusal(install, token, at(second)), seed_refusal(install, token, "10.0.0.5", at(second)),
        inventory_refusal(install, token, at(second)), upload_refusal(install, token, at(second)),
        phone_refusal(install, token, at(second)),
    ]  # fmt: skip
    if None in answers:
        assert armings[-1] == hash_token(token)


@settings(max_examples=100, deadline=None)
@given(steps=STEPS)
def test_folding_in_two_parts_is_folding_at_once(steps: list[tuple[int, Draft]]) -> None:
    made = events(*steps)
    half = len(made) // 2
    assert fold_installs(made[half:], fold_installs(made[:half])) == fold_installs(made)


@settings(max_examples=200, deadline=None)
@given(
    method=st.sampled_from(["GET", "HEAD", "POST", "PUT", "DELETE"]),
    target=st.text(max_size=60)
    | st.lists(st.sampled_from(["files", "seed", "upload", "n1", TOKEN, "..", ".", "", "%2e%2e", "%2f", "%00", "a", "\\", "user-data"]), max_size=5).map(
        lambda words: "/" + "/".join(words)
    ),
)  # fmt: skip
def test_whatever_is_asked_no_name_leads_out_of_its_folder(method: str, target: str) -> None:
    found = parse_request(method, target)
    if isinstance(found, Request):
        for name in (found.name, found.node, found.token):
            assert "/" not in name
            assert "\\" not in name
            assert "\0" not in name
            assert not name.startswith(".")


@settings(max_examples=80, deadline=None)
@given(
    found=st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["dmi", "disks", "nics", "serial", "mac", "product_serial"]), inner, max_size=4
            )
        ),
        max_leaves=10,
    ),
    serial=st.text(max_size=10),
    mac=st.text(max_size=20),
)
def test_whatever_a_machine_says_it_is_told_apart(found: Any, serial: str, mac: str) -> None:
    assert differences(EXPECTED, found)
    assert MACHINES.named(serial, mac)[0] is None or serial.strip() in ("", "SN-1", "SN-2")


@pytest.mark.parametrize(
    ("name", "result", "step"),
    [
        ("subiquity/Install", None, True),
        ("subiquity/Install/install", None, True),
        ("subiquity/Install/install", "SUCCESS", True),
        ("subiquity/Install/install/configure_apt", "SUCCESS", False),
        ("subiquity/Install/install/configure_apt", "FAIL", True),
    ],
)
def test_each_stage_of_the_installer_is_a_step_and_what_is_below_it_only_where_it_failed(
    name: str, result: str | None, step: bool
) -> None:
    assert noteworthy({"name": name, "result": result}) is step
