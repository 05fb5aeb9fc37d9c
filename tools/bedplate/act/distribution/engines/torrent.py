"""BitTorrent between the nodes: each gives on what it has while it gets the rest.

The peers are told, by rack; there is no tracker and no discovery, and who is no peer is not let in. A node listens on
its own address for as long as its program runs. The source, on this controller, listens nowhere: it connects to nodes.
"""

import base64
import threading
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
    with local.running(job.payload.path.parent, spec) as source:
        swarm.source = source.orders
        FanOut(job.payload, job.targets, feed, said, len(job.targets), job.patience, job.progress).run(ended)
    return int(source.last.get("have", 0))


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
