"""The source: gives away a file that it has, to peers that it connects to; it listens nowhere.

With `make` it writes the torrent of a file instead: version 2, so that every piece is checked by sha256.
"""

from __future__ import annotations

import base64
import os
import queue

from bedplate_place.faults import STOPPED, Failed
from bedplate_place.torrent_session import Swarm, library

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from bedplate_place.talk import Talk

STEP_S = 0.25


def run(directory: str, spec: dict[str, Any], talk: Talk) -> None:
    if "piece_bytes" in spec:
        talk.say(torrent=base64.b64encode(made(directory, spec["name"], spec["piece_bytes"])).decode())
        return
    swarm = Swarm(spec, directory, spec["name"], listens=False, seeds=True)
    talk.listen()
    while not (talk.told_to_end or talk.alone):
        for alert in swarm.alerts(STEP_S):
            if type(alert).__name__ in {"file_error_alert", "torrent_error_alert"}:
                raise Failed(STOPPED, f"libtorrent: {alert.message()}")
        try:
            while True:
                swarm.take(talk.orders.get_nowait())
        except queue.Empty:
            pass
        swarm.connect()
        status = swarm.torrent.status()
        talk.have(status.total_upload, peers=status.num_peers)
    talk.say(have=swarm.torrent.status().total_upload)


def made(directory: str, name: str, piece_bytes: int) -> bytes:
    lt = library()
    files = lt.file_storage()
    files.add_file(name, os.stat(os.path.join(directory, name)).st_size)
    torrent = lt.create_torrent(files, piece_bytes, lt.create_torrent.v2_only)
    torrent.set_priv(True)
    lt.set_piece_hashes(torrent, directory)
    data: bytes = lt.bencode(torrent.generate())
    return data
