"""A real server of PostgreSQL for tests, from Debian's package: a cluster of its own on a socket, never a port."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

START_S = 120.0
CONFIGURATION = """
max_connections = 30
shared_buffers = 16MB
max_wal_size = 32MB
min_wal_size = 2MB
log_min_messages = fatal
"""


def programs() -> Path:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[4]))
    if not found:
        pytest.skip("no PostgreSQL here (tools/setup installs it)")
    return found[-1].parent


class Server:
    """One cluster; it can be killed and started again. mounted: on a file system of this size, of its own."""

    def __init__(self, folder: Path, *, mounted: str | None = None, configuration: str = CONFIGURATION) -> None:
        self.folder = folder
        self.configuration = configuration
        self.data = folder / "data"
        self.mounted = mounted
        self.process: subprocess.Popen[bytes] | None = None

    def url(self, database: str, role: str = "postgres") -> str:
        return f"postgresql://{role}@/{database}?host={self.folder}"

    def make(self) -> None:
        self.folder.chmod(0o755)
        if os.geteuid() == 0:
            shutil.chown(self.folder, "postgres")
        words: list[str | Path] = [programs() / "initdb", "-D", self.data, "-A", "trust", "-U", "postgres"]
        subprocess.run(
            [*as_postgres(), *words, "-E", "UTF8", "--no-sync", "--locale=C", "--wal-segsize=1"],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        with (self.data / "postgresql.conf").open("a") as file:
            file.write(f"{self.configuration}\nlisten_addresses = ''\nunix_socket_directories = '{self.folder}'\n")

    def start(self) -> None:
        words = [*as_postgres(), str(programs() / "postgres"), "-D", str(self.data)]
        if self.mounted is not None:
            script = f'mount -t tmpfs -o size={self.mounted} none "$1" && cp -a "$2/." "$1" && shift 2 && exec "$@"'
            shutil.rmtree(self.folder / "made", ignore_errors=True)
            shutil.copytree(self.data, self.folder / "made", copy_function=shutil.copy2)
            subprocess.run(["chown", "-R", "postgres", self.folder / "made"], check=True)
            words = ["unshare", "--mount", "sh", "-ec", script, "sh", str(self.data), str(self.folder / "made"), *words]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(words, stdout=log, stderr=log, start_new_session=True)
        deadline = time.monotonic() + START_S
        probe: list[str | Path] = [programs() / "pg_isready", "-q", "-h", self.folder]
        while subprocess.run(probe, check=False).returncode:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError((self.folder / "log").read_text(errors="replace"))
            time.sleep(0.05)

    def kill(self) -> None:
        """As a power loss would: every process of it at once."""
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        # Its children are in sessions of their own, and go when they see that it is gone; the next start waits for it.
        (self.data / "postmaster.pid").unlink(missing_ok=True)

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGQUIT)
            self.process.wait()

    def database(self, name: str) -> str:
        subprocess.run([programs() / "createdb", "-h", self.folder, "-U", "postgres", name], check=True)
        return self.url(name)

    def sql(self, database: str, *statements: str) -> str:
        words: list[str | Path] = [programs() / "psql", "-qAtX", "-h", self.folder, "-U", "postgres", database]
        words += ["-v", "ON_ERROR_STOP=1"]
        commands = [word for statement in statements for word in ("-c", statement)]
        done = subprocess.run([*words, *commands], check=False, capture_output=True, text=True)
        return done.stdout.strip() if done.returncode == 0 else done.stderr.strip()


def as_postgres() -> list[str]:
    """The server refuses to run as root; it ends with the tests, however these end."""
    words = ["setpriv", "--pdeathsig=QUIT"]
    return [*words, "--reuid=postgres", "--regid=postgres", "--init-groups"] if os.geteuid() == 0 else words


@contextmanager
def server(*, mounted: str | None = None, configuration: str = CONFIGURATION) -> Iterator[Server]:
    programs()
    with tempfile.TemporaryDirectory(prefix="bedplate-pg-", dir="/tmp") as name:  # a socket's path is at most 107 long
        made = Server(Path(name), mounted=mounted, configuration=configuration)
        made.make()
        made.start()
        try:
            yield made
        finally:
            made.stop()
