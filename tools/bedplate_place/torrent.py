"""The file from all who have pieces of it, given on meanwhile.

libtorrent checks each piece against the torrent's sha256 tree; the whole file is hashed from the disk besides.
A node whose controller is gone goes on for as long as bytes move: the others may need it, and it the others.
"""

from __future__ import annotations

import errno
import os
import queue
import time

from bedplate_place.faults import FAULT, OTHER_BYTES, STOPPED, Failed
from bedplate_place.files import Wanted, turn
from bedplate_place.torrent_session import Swarm

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from bedplate_place.talk import Talk

KIND = "swarm"
SILENCE_S = 30.0  # without a byte, and without a controller: nobody comes any more
FLUSH_S = 600.0
STEP_S = 0.25


def run(directory: str, spec: dict[str, Any], talk: Talk) -> None:
    wanted = Wanted(directory, spec)
    with turn(directory):
        if wanted.there():
            talk.say(placed=wanted.sha256, size=wanted.size)
            return
        wanted.check_space(KIND)
        if os.path.islink(wanted.part(KIND)) or os.path.isdir(wanted.path):
            raise Failed(FAULT, f"{wanted.part(KIND)} or {wanted.path} is no regular file")
        leaf = Leaf(wanted, spec, talk)
        leaf.run()
        leaf.swarm.close()
        if wanted.look and wanted.look.why_not == os.strerror(errno.ETXTBSY):
            wanted.there()  # fs-verity could not be turned on while libtorrent held the file open


class Leaf:
    def __init__(self, wanted: Wanted, spec: dict[str, Any], talk: Talk) -> None:
        self.wanted, self.talk = wanted, talk
        self.swarm = Swarm(spec, wanted.directory, wanted.part_name(KIND), listens=True, seeds=False)
        self.moved, self.moved_at = 0, time.monotonic()
        self.placed = False
        self.received: dict[str, int] = {}  # address -> bytes, of the connections that are open or were

    def run(self) -> None:
        self.talk.say(port=self._port())
        self.talk.listen()
        while not self._over():
            for alert in self.swarm.alerts(STEP_S):
                name = type(alert).__name__
                if name in {"file_error_alert", "torrent_error_alert", "metadata_failed_alert"}:
                    raise Failed(FAULT, f"libtorrent: {alert.message()}")
            self._orders()
            self.swarm.connect()
            status = self.swarm.torrent.status()
            self._note(status)
            self.talk.have(status.total_done, up=status.total_upload, peers=status.num_peers)
            if not self.placed and status.is_seeding:
                self._place()
        if not self.placed:
            done = self.swarm.torrent.status().total_done
            raise Failed(STOPPED, f"stopped at {done} of {self.wanted.size} bytes")

    def _port(self) -> int:
        if self.swarm.wait({"listen_succeeded_alert"}, 30) is None or not self.swarm.session.listen_port():
            raise Failed(FAULT, "cannot listen: is the address of this node the one that the fleet says?")
        return int(self.swarm.session.listen_port())

    def _orders(self) -> None:
        while True:
            try:
                order = self.talk.orders.get_nowait()
            except queue.Empty:
                return
            self.swarm.take(order)

    def _note(self, status: Any) -> None:
        moved = status.total_payload_download + status.total_payload_upload
        if moved != self.moved or status.state in (status.checking_files, status.checking_resume_data):
            self.moved, self.moved_at = moved, time.monotonic()
        for peer in self.swarm.torrent.get_peer_info():
            self.received[peer.ip[0]] = max(self.received.get(peer.ip[0], 0), peer.total_download)

    def _over(self) -> bool:
        if self.talk.told_to_end:
            return True
        if not self.talk.alone:
            return False
        silent = time.monotonic() > self.moved_at + SILENCE_S
        unserved = any(not peer.flags & peer.seed for peer in self.swarm.torrent.get_peer_info())
        return silent or (self.placed and not unserved)

    def _place(self) -> None:
        """Everything is on its way to the disk: wait until it is there, look at it as a whole, let it have its name."""
        torrent = self.swarm.torrent
        torrent.flush_cache()
        if self.swarm.wait({"cache_flushed_alert"}, FLUSH_S) is None:
            raise Failed(FAULT, f"libtorrent did not write its cache in {FLUSH_S:g} s")
        part = self.wanted.part(KIND)
        self.wanted.check(part)
        # libtorrent renames itself: it goes on to give the file away, and must know where it is.
        torrent.rename_file(0, self.wanted.name)
        alert = self.swarm.wait({"file_renamed_alert", "file_rename_failed_alert"}, FLUSH_S)
        if alert is None or type(alert).__name__ != "file_renamed_alert" or not os.path.exists(self.wanted.path):
            raise Failed(OTHER_BYTES, f"libtorrent: {alert.message() if alert else 'did not rename the file'}")
        self.wanted.published()
        self.placed = True
        self.talk.say(placed=self.wanted.sha256, size=self.wanted.size, received=self.received)
