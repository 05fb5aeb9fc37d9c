"""Network namespaces with links of a fixed rate: a source and nodes on one bridge, for moving files between them.

No loss and no delay: netem is not in every kernel. Nobody has a way out, and names are in /etc/netns/NAME/hosts.
"""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bedplate.process import run

NETWORK = "10.79.0"
PREFIX = "bplinks"


class Links:
    """Within a `with`: namespaces `bplinksPID-NAME`; each link held to `mbit` both ways."""

    def __init__(self, *, nodes: int, racks: int, mbit: float) -> None:
        self.nodes = [f"n{number}" for number in range(1, nodes + 1)]
        self.source = "n0"
        self.racks = {node: f"r{index * racks // nodes + 1}" for index, node in enumerate(self.nodes)}
        self.mbit = mbit
        self._name = f"{PREFIX}{os.getpid()}"

    @staticmethod
    def address_of(node: str) -> str:
        return f"{NETWORK}.{10 + int(node[1:])}"

    def namespace(self, node: str = "br") -> str:
        return f"{self._name}-{node}"

    def inside(self, node: str, argv: Sequence[str | Path]) -> list[str]:
        return ["ip", "netns", "exec", self.namespace(node), *map(str, argv)]

    def sent_by_source(self) -> int:
        """Bytes that left the source, every header included."""
        said = run(self.inside(self.source, ["cat", "/sys/class/net/e0/statistics/tx_bytes"]))
        return int(said.out)

    def limit(self, node: str, mbit: float) -> None:
        """Hold a link to another rate from now on."""
        tbf = ["root", "tbf", "rate", f"{round(mbit * 1000)}kbit", "burst", "256k", "latency", "50ms"]
        run(["ip", "netns", "exec", self.namespace(node), "tc", "qdisc", "replace", "dev", "e0", *tbf])
        run(["ip", "netns", "exec", self.namespace(), "tc", "qdisc", "replace", "dev", f"v-{node}", *tbf])

    def __enter__(self) -> Self:
        try:
            self._make()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, where: TracebackType | None
    ) -> None:
        self._remove()

    def _make(self) -> None:
        bridge, everybody = self.namespace(), [self.source, *self.nodes]
        run(["ip", "netns", "add", bridge])
        # mcast_snooping 0: multicast reaches everybody without a querier.
        first = [
            "link set lo up",
            "link add br0 type bridge mcast_snooping 0 forward_delay 0 stp_state 0",
            "link set br0 up",
        ]
        run(["ip", "-n", bridge, "-batch", "-"], stdin="\n".join(first) + "\n")
        hosts = "127.0.0.1 localhost\n" + "".join(f"{self.address_of(node)} {node}\n" for node in everybody)
        for node in everybody:
            name = self.namespace(node)
            names = Path("/etc/netns") / name
            names.mkdir(parents=True)
            (names / "hosts").write_text(hosts)
            (names / "resolv.conf").write_text("nameserver 127.0.0.1\noptions timeout:1 attempts:1\n")
            run(["ip", "netns", "add", name])
            link = f"link add v-{node} type veth peer name e0 netns {name}\nlink set v-{node} master br0 up\n"
            run(["ip", "-n", bridge, "-batch", "-"], stdin=link)
            inside = [
                "link set lo up", f"addr add {self.address_of(node)}/24 dev e0", "link set e0 up",
                "route add 224.0.0.0/4 dev e0",
            ]  # fmt: skip
            run(["ip", "-n", name, "-batch", "-"], stdin="\n".join(inside) + "\n")
            self.limit(node, self.mbit)

    def _remove(self) -> None:
        for node in ["br", self.source, *self.nodes]:
            run(["ip", "netns", "del", self.namespace(node)], check=False)
            shutil.rmtree(Path("/etc/netns") / self.namespace(node), ignore_errors=True)


@contextmanager
def started(argv: Sequence[str | Path], **options: Any) -> Iterator["subprocess.Popen[bytes]"]:
    """A program that runs until the end of the block."""
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, start_new_session=True, **options) as process:
        try:
            yield process
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
