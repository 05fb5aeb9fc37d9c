import contextlib
import hashlib
import queue
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import paramiko
import pytest

from bedplate.ssh import Answer, Target, _Visit, run_everywhere
from unit.sshd import Sshd, sshd

pytestmark = pytest.mark.slow  # every test starts programs


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with sshd(tmp_path_factory.mktemp("sshd")) as running:
        yield running


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """A server that takes connections and never says a word; closed, it resets them."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listening:
        yield listening


def port(listening: socket.socket) -> int:
    return int(listening.getsockname()[1])


def ask(target: Target, command: str, *, stdin: bytes | Path | None = None, timeout_s: float = 60) -> Answer:
    (answer,) = run_everywhere([target], command, stdin=stdin, timeout_s=timeout_s)
    return answer


def test_an_answer_has_code_stdout_and_stderr(server: Sshd) -> None:
    answer = ask(server.target("n1"), "echo out; echo err >&2; exit 3")
    assert (answer.code, answer.out, answer.err, answer.fault) == (3, b"out\n", b"err\n", None)
    assert not answer.ok
    assert answer.why == "ended with 3: err"


def test_every_target_gets_exactly_one_answer(server: Sshd, silent: socket.socket, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.touch()
    good = [server.target(f"n{number}") for number in range(1, 9)]
    refused = Target("refused", "127.0.0.1", "root", 1, server.identity_file, server.known_hosts)
    mute = Target("mute", "127.0.0.1", "root", port(silent), server.identity_file, server.known_hosts)
    targets = [*good[:4], refused, mute, server.target("stranger", known_hosts=empty), *good[4:]]
    answers = []
    for answer in run_everywhere(targets, "true", width=3, timeout_s=120):
        answers.append(answer)
        if len(answers) == len(targets) - 1:
            silent.close()  # the last one need not be waited for
    assert sorted(answer.name for answer in answers) == sorted(target.name for target in targets)
    assert {answer.name for answer in answers if not answer.ok} == {"refused", "mute", "stranger"}


def test_never_more_than_width_nodes_at_once(tmp_path: Path) -> None:
    lock, now, most = threading.Lock(), 0, 0

    def count(channel: paramiko.Channel, _command: str) -> None:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        time.sleep(0.05)
        with lock:
            now -= 1
        channel.send_exit_status(0)
        channel.close()

    with sshd(tmp_path, count) as server:
        answers = list(run_everywhere([server.target(f"n{n}") for n in range(8)], "x", width=2, timeout_s=60))
    assert all(answer.ok for answer in answers)
    assert most <= 2


def test_stdin_is_streamed_from_a_file_and_hashed_on_the_way(server: Sshd, tmp_path: Path) -> None:
    data = bytes(range(256)) * 12_000  # more than one window of 2 MiB
    (tmp_path / "big").write_bytes(data)
    answer = ask(server.target("n1"), "sha256sum", stdin=tmp_path / "big", timeout_s=30)
    digest = hashlib.sha256(data).hexdigest()
    assert answer.out.decode().split()[0] == digest
    assert (answer.sent_bytes, answer.sent_sha256) == (len(data), digest)


def test_a_command_that_echoes_more_than_a_window_does_not_deadlock(server: Sshd) -> None:
    data = b"x" * 5_000_000
    answer = ask(server.target("n1"), "cat", stdin=data, timeout_s=30)
    assert answer.out == data


def test_a_command_that_ends_before_it_read_its_stdin_still_answers(server: Sshd) -> None:
    answer = ask(server.target("n1"), "exit 5", stdin=b"x" * 5_000_000, timeout_s=30)
    assert (answer.code, answer.fault) == (5, None)


def test_progress_is_told_while_sending(server: Sshd) -> None:
    seen: list[tuple[str, int]] = []
    list(
        run_everywhere(
            [server.target("n1")], "cat >/dev/null", stdin=b"x" * 1_000_000, timeout_s=60,
            progress=lambda name, sent: seen.append((name, sent)),
        )
    )  # fmt: skip
    assert seen[-1] == ("n1", 1_000_000)
    assert [sent for _, sent in seen] == sorted(sent for _, sent in seen)


def test_an_unknown_host_key_is_named_and_never_learnt(server: Sshd, tmp_path: Path) -> None:
    known = tmp_path / "known_hosts"
    known.write_text("# nobody\n")
    answer = ask(server.target("n1", known_hosts=known), "true")
    assert answer.code is None
    assert answer.fault
    assert "is unknown" in answer.fault
    assert f"{server.host_key.get_name()} {server.host_key.fingerprint}" in answer.fault
    assert known.read_text() == "# nobody\n"


def test_a_changed_host_key_is_refused(server: Sshd, tmp_path: Path) -> None:
    known = tmp_path / "known_hosts"
    other = paramiko.Ed25519Key.from_private_key_file(str(server.identity_file))
    known.write_text(server.known_line("127.0.0.1", other))
    answer = ask(server.target("n1", known_hosts=known), "true")
    assert answer.fault
    assert "changed" in answer.fault
    assert server.host_key.fingerprint in answer.fault


def test_a_key_known_by_the_nodes_name_is_enough(server: Sshd, tmp_path: Path) -> None:
    known = tmp_path / "known_hosts"
    known.write_text(server.known_line("n1"))
    assert ask(server.target("n1", known_hosts=known), "true").ok
    assert not ask(server.target("n2", known_hosts=known), "true").ok


def test_a_hashed_name_is_found(server: Sshd, tmp_path: Path) -> None:
    known = tmp_path / "known_hosts"
    name = f"[127.0.0.1]:{server.port}"
    known.write_text(server.known_line("127.0.0.1").replace(name, paramiko.HostKeys.hash_host(name)))
    assert ask(server.target("n1", known_hosts=known), "true").ok


def test_address_and_name_must_not_disagree(server: Sshd, tmp_path: Path) -> None:
    known = tmp_path / "known_hosts"
    other = paramiko.Ed25519Key.from_private_key_file(str(server.identity_file))
    known.write_text(server.known_line("n1", other) + server.known_line("127.0.0.1"))
    fault = ask(server.target("n1", known_hosts=known), "true").fault
    assert fault
    assert "changed" in fault


def test_a_second_key_of_the_same_type_is_accepted(server: Sshd, tmp_path: Path) -> None:
    known = tmp_path / "known_hosts"
    other = paramiko.Ed25519Key.from_private_key_file(str(server.identity_file))
    known.write_text(server.known_line("127.0.0.1", other) + server.known_line("127.0.0.1"))
    assert ask(server.target("n1", known_hosts=known), "true").ok


def test_a_revoked_key_is_refused_though_it_is_known(server: Sshd, tmp_path: Path) -> None:
    known = tmp_path / "known_hosts"
    known.write_text(server.known_line("127.0.0.1") + "@revoked " + server.known_line("*"))
    fault = ask(server.target("n1", known_hosts=known), "true").fault
    assert fault
    assert "revoked" in fault


def test_an_absent_known_hosts_file_is_a_fault(server: Sshd, tmp_path: Path) -> None:
    fault = ask(server.target("n1", known_hosts=tmp_path / "none"), "true").fault
    assert fault
    assert "cannot read" in fault


def test_a_user_that_the_key_does_not_open_is_a_fault(server: Sshd) -> None:
    fault = ask(server.target("n1", user="mallory"), "true").fault
    assert fault
    assert fault.startswith("logging in as mallory: ssh-ed25519 ")


def test_an_absent_identity_file_is_a_fault(server: Sshd, tmp_path: Path) -> None:
    target = Target("n1", "127.0.0.1", "root", server.port, tmp_path / "none", server.known_hosts)
    fault = ask(target, "true").fault
    assert fault
    assert "cannot read the key" in fault


def test_a_port_that_nobody_listens_on_is_a_fault(server: Sshd) -> None:
    answer = ask(Target("n1", "127.0.0.1", "root", 1, server.identity_file, server.known_hosts), "true")
    assert answer.fault
    assert "refused" in answer.fault


def test_a_server_that_never_says_a_word_meets_the_deadline(server: Sshd, silent: socket.socket) -> None:
    began = time.monotonic()
    answer = ask(
        Target("n1", "127.0.0.1", "root", port(silent), server.identity_file, server.known_hosts),
        "true",
        timeout_s=0.5,
    )
    assert answer.fault == "checking the host key: no end after 0.5 s"
    assert time.monotonic() - began < 60


def test_a_command_that_hangs_meets_the_deadline_and_keeps_what_it_said(server: Sshd) -> None:
    answer = ask(server.target("n1"), "echo first; exec sleep 30", timeout_s=5)
    assert (answer.code, answer.out) == (None, b"first\n")
    assert answer.fault == "running the command: no end after 5 s"


def test_a_server_that_takes_no_more_bytes_meets_the_deadline(server: Sshd) -> None:
    answer = ask(server.target("n1"), "exec sleep 30", stdin=b"x" * 8_000_000, timeout_s=5)
    assert answer.fault == "running the command: no end after 5 s"


def test_a_connection_lost_in_mid_command_is_a_fault(tmp_path: Path) -> None:
    def hang_up(channel: paramiko.Channel, _command: str) -> None:
        channel.sendall(b"half")
        time.sleep(0.1)
        channel.get_transport().close()

    with sshd(tmp_path, hang_up) as server:
        answer = ask(server.target("n1"), "true")
    assert answer.code is None
    assert answer.out == b"half"
    assert answer.fault
    assert "ended without an exit code" in answer.fault


def test_a_channel_closed_without_an_exit_code_is_a_fault(tmp_path: Path) -> None:
    with sshd(tmp_path, lambda channel, _command: channel.close()) as server:
        answer = ask(server.target("n1"), "true")
    assert (answer.code, answer.ok) == (None, False)
    assert answer.fault


def test_a_flood_of_output_is_cut_off(server: Sshd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bedplate.ssh.OUTPUT_LIMIT_BYTES", 1_000_000)
    fault = ask(server.target("n1"), "head -c 3000000 /dev/zero").fault
    assert fault
    assert "more than 1000000 bytes" in fault


def test_leaving_early_closes_the_connections(server: Sshd) -> None:
    before = {t for t in threading.enumerate() if t.name.startswith("ssh ")}
    answers = run_everywhere([server.target("a"), server.target("b")], "exec sleep 1", timeout_s=20)
    quick = run_everywhere([server.target("c")], "true", timeout_s=20)
    assert next(quick).ok
    waiter = threading.Thread(target=lambda: next(answers, None), daemon=True)
    waiter.start()
    waiter.join(5)
    answers.close()
    deadline = time.monotonic() + 60
    while {t for t in threading.enumerate() if t.name.startswith("ssh ")} - before:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_name_that_stands_twice_is_a_mistake_of_the_caller(server: Sshd) -> None:
    with pytest.raises(ValueError, match="twice"):
        list(run_everywhere([server.target("a"), server.target("a")], "true", timeout_s=1))


class LastMoment:
    """A channel on which output, end and exit code come together, just when somebody looks for the end."""

    closed = False
    exit_status = 0

    def __init__(self) -> None:
        self.waiting = b""
        self.eof_received = False
        self.status_event = threading.Event()

    def fileno(self) -> int:
        return 0

    def exit_status_ready(self) -> bool:
        if not self.eof_received:
            self.eof_received, self.waiting = True, b"late"
        return True

    def recv_ready(self) -> bool:
        return bool(self.waiting)

    def recv(self, _count: int) -> bytes:
        data, self.waiting = self.waiting, b""
        return data

    def recv_stderr_ready(self) -> bool:
        return False

    recv_stderr = recv

    def settimeout(self, _seconds: float) -> None:
        pass

    def shutdown_write(self) -> None:
        pass


def test_output_that_comes_with_the_end_is_not_lost(server: Sshd) -> None:
    visit = _Visit(server.target("n1"), "true", None, 10, None)
    assert visit.converse(cast("paramiko.Channel", LastMoment())) == 0
    assert bytes(visit.out) == b"late"


def test_a_conversation_is_heard_while_it_goes_on_and_ends_when_the_feed_does(server: Sshd) -> None:
    class Answering:
        """Says its next line when it has heard an answer to the last."""

        def __init__(self) -> None:
            self.lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
            self.heard: list[bytes] = []

        def read(self, _size: int, /) -> bytes | None:
            with contextlib.suppress(queue.Empty):
                return self.lines.get_nowait()
            return None

        def hear(self, _name: str, said: bytes) -> None:
            self.heard.append(said)
            self.lines.put(b"two\n" if b"one" in said else b"")

    feed = Answering()
    feed.lines.put(b"one\n")
    command = "while read x; do echo got $x; done; echo end"
    answers = list(run_everywhere([server.target("n1")], command, stdin=feed, heard=feed.hear, timeout_s=60))
    assert answers[0].ok
    assert answers[0].out == b"got one\ngot two\nend\n"
    assert b"".join(feed.heard) == answers[0].out
