"""Images that nodes need no more: which, by the ledger and the locks; removed by the nodes, never one in use."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from bedplate.act import image as images
from bedplate.act.distribution import nodes as fleetnodes
from bedplate.decide.distribution.keep import LOCKED, PLACED, Kept, kept, known_images
from bedplate.ledger import projection
from bedplate.ledger.store import Ledger
from bedplate.model.event import Draft
from bedplate.model.fleet import Node
from bedplate.model.layers import Layer
from bedplate.sources.site import Site

COLLECTED = "image.collected"
TIMEOUT_S = 300.0


@dataclass(frozen=True)
class File:
    """does: keep, would remove, removed."""

    name: str
    size: int
    does: str
    why: str


@dataclass(frozen=True)
class Collected:
    """What one node has, and what becomes of it; why: why nothing was looked at."""

    node: str
    files: tuple[File, ...] = ()
    why: str = ""

    @property
    def freed(self) -> int:
        return sum(file.size for file in self.files if file.does == "removed")


def collect(site: Site, nodes: Collection[str] | None, *, remove: bool) -> list[Collected]:
    """Look at the images of nodes (None: all that an environment with an image is for); remove what is not needed.

    Raises:
        Refused: the site is an example.
    """
    site.refuse_example("collect images of nodes")
    chosen = [node for node in _with_images(site) if nodes is None or node.name in nodes]
    with Ledger.read(site.ledger_url) as ledger:
        world = projection.world(ledger)
        known = known_images(ledger.events(kinds=[LOCKED, PLACED]))
    found: dict[str, Collected] = {}
    questions: dict[str, dict[str, Any]] = {}
    for node in chosen:
        keeps = kept(world.state(node.name), known, candidates(site, node))
        if keeps.unknown:
            found[node.name] = Collected(node.name, why=f"left alone: {'; '.join(keeps.unknown)}")
        else:
            questions[node.name] = {"do": "collect", "keep": _files(keeps), "remove": remove}
    targets = [fleetnodes.target(site, node) for node in chosen if node.name in questions]
    for answer, said, why in fleetnodes.ask(targets, questions, timeout_s=TIMEOUT_S):
        files = tuple(File(**row) for row in said.get("files", ()))
        found[answer.name] = Collected(answer.name, files, why)
    rows = [found[node.name] for node in chosen]
    _record(site, rows)
    return rows


def candidates(site: Site, node: Node) -> dict[str, str]:
    """Images that a node may be asked to run next: sha256 -> why."""
    found: dict[str, str] = {}
    for name in site.environment_names():
        environment = site.environment(name)
        if node.kind not in environment.kinds or environment.layers[Layer.IMAGE].definition is None:
            continue
        if site.lock_path(name).exists() and (image := site.lock(name).image) is not None:
            found.setdefault(image.squashfs_sha256, f"lock {name}")
        record = images.asked(site, name).record
        if record is not None and record.squashfs is not None:
            found.setdefault(record.squashfs.sha256, f"imported for {name}")
    return found


def _with_images(site: Site) -> list[Node]:
    kinds = {
        kind
        for name in site.environment_names()
        if site.environment(name).layers[Layer.IMAGE].definition is not None
        for kind in site.environment(name).kinds
    }
    return site.fleet.nodes_of(kinds)


def _files(keeps: Kept) -> dict[str, str]:
    return {f"{sha256.replace(':', '-')}.sqsh": why for sha256, why in keeps.images.items()}


def _record(site: Site, rows: list[Collected]) -> None:
    drafts = [
        Draft(
            COLLECTED,
            (f"node:{row.node}",),
            {"removed": [file.name for file in row.files if file.does == "removed"], "freed": row.freed},
        )
        for row in rows
        if row.freed
    ]
    if drafts:
        with Ledger.open(site.ledger_url) as ledger:
            ledger.append(*drafts)
