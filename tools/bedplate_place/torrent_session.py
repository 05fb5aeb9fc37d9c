"""libtorrent, set up for one file on a closed network.

TCP alone; no tracker, no DHT, no discovery: peers are told. Who is none of them is not let in. Settings are those that
were fastest with 8 nodes over links of 40 Mbit (docs/distribution.md has the table): short request queues, so that a
piece that one node got is soon what others ask it for.
"""

from __future__ import annotations

import base64
import importlib
import time

from bedplate_place.faults import MISSING, Failed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FIRST_PORT = 6881
MORE_PORTS = 15  # tried when one is taken
RECONNECT_S = 2.0

SETTINGS = {
    "enable_dht": False, "enable_lsd": False, "enable_upnp": False, "enable_natpmp": False,
    "enable_incoming_utp": False, "enable_outgoing_utp": False,
    "in_enc_policy": 2, "out_enc_policy": 2,  # disabled: what it has is no protection, and costs CPU
    "connection_speed": 500, "smooth_connects": False, "min_reconnect_time": 1, "max_failcount": 1000,
    "max_retry_port_bind": MORE_PORTS,
    "unchoke_slots_limit": -1, "seed_choking_algorithm": 0, "suggest_mode": 0,
    "initial_picker_threshold": 0, "whole_pieces_threshold": 0,
    "request_queue_time": 1, "max_out_request_queue": 32,
    "send_buffer_watermark": 65536, "send_buffer_low_watermark": 16384, "send_socket_buffer_size": 65536,
    "user_agent": "bedplate",
}  # fmt: skip


def library() -> Any:
    try:
        return importlib.import_module("libtorrent")
    except ImportError as fault:
        raise Failed(MISSING, f"no libtorrent: {fault} (apt-get install python3-libtorrent)") from fault


class Swarm:
    """A session with one torrent, and the peers that it knows of."""

    def __init__(self, spec: dict[str, Any], folder: str, name: str, *, listens: bool, seeds: bool) -> None:
        lt = self.lt = library()
        category = lt.alert.category_t
        settings = {
            **SETTINGS,
            **spec.get("settings", {}),
            "listen_interfaces": f"{spec['address']}:{FIRST_PORT}" if listens else "",
            "upload_rate_limit": spec["rate"],
            "download_rate_limit": spec["rate"],
            "alert_mask": category.storage_notification | category.error_notification | category.status_notification,
        }
        if listens:  # out by the same address: others know this node by it
            settings["outgoing_interfaces"] = spec["address"]
        self.session = lt.session(settings)
        # By default rates and slots are not for peers on private networks: ours all are.
        everybody = lt.ip_filter()
        everybody.add_rule("0.0.0.0", "255.255.255.255", 1 << lt.session.global_peer_class_id)  # noqa: S104  a rule
        self.session.set_peer_class_filter(everybody)
        self.peers: dict[tuple[str, int], float] = {}  # and when they were last tried
        self.allowed: set[str] = set()
        self.allow(spec["allowed"])
        metadata = lt.torrent_info(lt.bdecode(base64.b64decode(spec["torrent"])))
        if metadata.files().file_name(0) != name:
            metadata.rename_file(0, name)
        params = lt.add_torrent_params()
        params.ti, params.save_path, params.max_uploads = metadata, folder, spec["slots"]
        flags = params.flags & ~lt.torrent_flags.auto_managed & ~lt.torrent_flags.paused
        params.flags = flags | lt.torrent_flags.seed_mode if seeds else flags
        self.torrent = self.session.add_torrent(params)

    def close(self) -> None:
        """Let go of everything; returns when it is done."""
        del self.torrent, self.session

    def allow(self, addresses: list[str]) -> None:
        """Let in these, and those of before, and nobody else."""
        self.allowed |= set(addresses)
        rules = self.lt.ip_filter()
        rules.add_rule("0.0.0.0", "255.255.255.255", 1)  # noqa: S104  a rule: nobody
        rules.add_rule("::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", 1)
        for address in self.allowed:
            rules.add_rule(address, address, 0)
        self.session.set_ip_filter(rules)

    def take(self, order: dict[str, Any]) -> None:
        """Peers that are told of: {"peers": [[address, port], …]}."""
        for address, port in order.get("peers", ()):
            self.peers = {peer: at for peer, at in self.peers.items() if peer[0] != address or peer[1] == port}
            self.peers.setdefault((address, port), 0.0)

    def connect(self) -> None:
        """Connect to peers that there is no connection with; also to those that were restarted."""
        connected = {peer.ip[0] for peer in self.torrent.get_peer_info()}
        now = time.monotonic()
        for (address, port), tried in self.peers.items():
            if address not in connected and now > tried + RECONNECT_S:
                self.peers[address, port] = now
                self.torrent.connect_peer((address, port))

    def alerts(self, wait_s: float) -> list[Any]:
        self.session.wait_for_alert(int(wait_s * 1000))
        found: list[Any] = self.session.pop_alerts()
        return found

    def wait(self, names: set[str], patience_s: float) -> Any:
        """The next alert of one of these kinds; None: there was none in time."""
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline:
            for alert in self.alerts(0.2):
                if type(alert).__name__ in names:
                    return alert
        return None
