"""BitTorrent between the nodes: each gives on what it has while it gets the rest.

The peers are told, by rack; there is no tracker and no discovery, and who is no peer is not let in. A node listens on
its own address for as long as its program runs. The source, on this controller, listens nowhere: it connects to nodes.
"""

import base64
import threading
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from bedplate.act.distribution import local
from bedplate.act.distribution.engine import Job
from bedplate.act.distribution.engines.http import own_address
from bedplate.act.distribution.fanout import Ended, FanOut
from bedplate.act.distribution.payload import Payload
from bedplate.act.distribution.visit import Orders, Visit
from bedplate.decide.distribution.peers import of_source, peers
from bedplate.decide.distribution.pieces import piece_bytes
from bedplate.model.faults import BedplateError
from bedplate.sources.files import write_whole

SLOTS = 8  # peers that a node serves at once
SEED_SLOTS = 6
MAKE_TIMEOUT_S = 3600.0
RESTARTS = 3  # of a source that dies
DEAD_S = 5.0
MANY = 64  # nodes: above, they speak more seldom, so that the controller is not busy with listening


class SourceFailed(BedplateError):
    """The source of a swarm could not be started, or ended."""


def move(job: Job, ended: Ended) -> int:
    torrent = base64.b64encode(torrent_of(job.payload)).decode()
    swarm = _Swarm(job)
    common = {**job.payload.spec, "torrent": torrent, "interval_s": 1.0 if len(job.targets) <= MANY else 5.0}

    def feed(visit: Visit) -> Orders:
        target = visit.target
        orders = Orders({
            "do": "torrent", **common, "address": target.address, "rate": job.caps.node, "slots": SLOTS,
            "allowed": [*swarm.addresses, own_address(target.address)],
        })  # fmt: skip
        swarm.joins(target.name, orders)
        return orders

    def said(visit: Visit, word: dict[str, Any]) -> None:
        if "port" in word:
            swarm.listens(visit.target.name, int(word["port"]))

    spec = {
        "do": "seed", **common, "name": job.payload.path.name, "address": "", "rate": job.caps.source,
        "slots": SEED_SLOTS, "allowed": swarm.addresses, "interval_s": 0.5,
    }  # fmt: skip
    with closing(_Source(job.payload.path.parent, spec, swarm)) as source:
        FanOut(job.payload, job.targets, feed, said, len(job.targets), job.patience, job.progress).run(ended)
    return source.sent


class _Source:
    """The source of a swarm. One that dies is started again, and told where everybody listens: nodes wait for it."""

    def __init__(self, directory: Path, spec: Mapping[str, Any], swarm: "_Swarm") -> None:
        self.sent = 0
        self._directory, self._spec, self._swarm = directory, spec, swarm
        self._left, self._closing, self._lock = RESTARTS, False, threading.Lock()
        self._ended: list[local.Local] = []
        self._local = self._started()

    def _started(self) -> local.Local:
        started = local.Local(self._directory, self._spec, self._again)
        self._swarm.fed_by(started.orders)
        return started

    def _again(self, dead: local.Local) -> None:
        dead.wait(DEAD_S)
        with self._lock:
            self._ended.append(dead)
            if not self._closing and self._left:
                self._left -= 1
                self._local = self._started()

    def close(self) -> None:
        with self._lock:
            self._closing = True
        self._local.close()
        with self._lock:
            ended = {id(one): one for one in [*self._ended, self._local]}
        self.sent = sum(int(one.last.get("have", 0)) for one in ended.values())


class _Swarm:
    """Who is to know whom, and where each listens; told as it becomes known, and anew when a node comes back."""

    def __init__(self, job: Job) -> None:
        racks: dict[str, list[str]] = {}
        for target in job.targets:
            racks.setdefault(job.racks.get(target.name, ""), []).append(target.name)
        self._peers, self._of_source = peers(racks), set(of_source(racks))
        self._address = {target.name: target.address for target in job.targets}
        self.addresses = sorted(self._address.values())
        self._orders: dict[str, Orders] = {}
        self._ports: dict[str, int] = {}
        self._lock = threading.Lock()
        self.source: Orders | None = None

    def joins(self, node: str, orders: Orders) -> None:
        with self._lock:
            self._orders[node] = orders
            known = [self._where(peer) for peer in sorted(self._peers[node]) if peer in self._ports]
        orders.tell({"peers": known})

    def listens(self, node: str, port: int) -> None:
        with self._lock:
            self._ports[node] = port
            told = {"peers": [self._where(node)]}
            for peer in self._peers[node]:
                if peer in self._orders:
                    self._orders[peer].tell(told)
            if self.source and node in self._of_source:
                self.source.tell(told)

    def fed_by(self, source: Orders) -> None:
        """Who the source is from now on; it is told where nodes listen that were told before it came."""
        with self._lock:
            self.source = source
            if known := [self._where(node) for node in sorted(self._of_source) if node in self._ports]:
                source.tell({"peers": known})

    def _where(self, node: str) -> list[str | int]:
        return [self._address[node], self._ports[node]]


def torrent_of(payload: Payload) -> bytes:
    """The torrent of a file, kept beside it: making it reads all of it.

    Raises:
        BedplateError: it could not be made.
    """
    kept = payload.path.with_name(f"{payload.path.name}.torrent")
    if kept.exists():
        return kept.read_bytes()
    made = _made(payload)
    write_whole(kept, made)
    return made


def _made(payload: Payload) -> bytes:
    spec = {"do": "seed", "name": payload.path.name, "piece_bytes": piece_bytes(payload.size)}
    said = local.asked(payload.path.parent, spec, timeout_s=MAKE_TIMEOUT_S)
    if "torrent" not in said:
        raise SourceFailed(f"no torrent of {payload.path} could be made: {said.get('failed', 'nothing was said')}")
    return base64.b64decode(said["torrent"])
