"""A site with an archive of its own: upstream archives on a local web server, a signing key, archive.yml."""

import functools
import http.server
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bedplate.act.archive import mirror as mirroring
from bedplate.act.archive import publish as publishing
from bedplate.act.archive import snapshot as freezing
from bedplate.act.archive.publish import Suite
from bedplate.sources.site import Site, open_site
from unit.apt_archive import Key, StubArchive
from unit.site_sample import write_site

ARCHIVE = """\
archive: sample
directory: {directory}
url: http://archive.lab:8080/
architectures: [amd64]
signing:
  user: archive@example.invalid
  key: keys/archive.asc
mirrors:
  base:
    url: {url}/base
    suites: [a]
    components: [main]
    key: keys/upstream.asc
  cuda:
    url: {url}/cuda
    suites: [a]
    components: [main]
    key: keys/upstream.asc
    filter: Name (% nvidia-*) | dkms
    exclude: [dkms]
"""


class _Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


class Broken:
    """Paths whose download breaks off in the middle."""

    def __init__(self) -> None:
        self.paths: set[str] = set()


@contextmanager
def upstream(root: Path) -> Iterator[tuple[str, Broken]]:
    """Serve a directory on a free port; what `Broken` names ends early."""
    broken = Broken()

    class Handler(_Handler):
        def do_GET(self) -> None:
            if any(path in self.path for path in broken.paths):
                self.send_response(200)
                self.send_header("Content-Length", "100000")
                self.end_headers()
                self.wfile.write(b"x" * 1000)
                self.close_connection = True
                return
            super().do_GET()

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(root)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", broken
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@dataclass
class Sample:
    """Upstream archives `base` and `cuda`, and a site that mirrors both."""

    root: Path
    url: str
    upstream_key: Key
    key: Key
    base: StubArchive = field(init=False)
    cuda: StubArchive = field(init=False)

    def __post_init__(self) -> None:
        site = write_site(self.root / "site")
        (site / "archive.yml").write_text(ARCHIVE.format(directory=self.directory, url=self.url))
        (site / "keys/archive.asc").write_bytes(self.key.public)
        (site / "keys/upstream.asc").write_bytes(self.upstream_key.public)
        self.base = StubArchive(self.root / "served/base")
        self.cuda = StubArchive(self.root / "served/cuda")
        self.directory.mkdir()
        shutil.copytree(self.key.home, self.directory / "gnupg", ignore=shutil.ignore_patterns("S.*"))
        (self.directory / "gnupg").chmod(0o700)

    @property
    def site(self) -> Site:
        """Opened anew: it reads each file once."""
        return open_site(self.root / "site")

    @property
    def directory(self) -> Path:
        return self.root / "archive"

    @property
    def public(self) -> Path:
        return self.directory / "public"

    def supply(self) -> None:
        """What upstream has at first: driver 580.1, a tool, and dkms twice."""
        self.base.add("tool", "1.0", arch="all")
        self.base.add("dkms", "3.0.11")
        self.cuda.add("nvidia-driver", "580.1-1", depends="tool (>= 1.0)")
        self.cuda.add("dkms", "1:3.4.1")
        self.cuda.add("mft", "4.30")
        self.sign()

    def sign(self) -> None:
        self.base.publish(self.upstream_key)
        self.cuda.publish(self.upstream_key)

    def mirror(self, *names: str) -> list[mirroring.Row]:
        return mirroring.mirror(self.site, names, say=lambda _: None)

    def freeze(self, name: str) -> freezing.Made:
        return freezing.snapshot(self.site, name)

    def publish(self, suite: str, snapshot: str | None = None) -> Suite:
        return publishing.publish(self.site, suite, snapshot)

    def definition(self, old: str, new: str) -> None:
        """Change archive.yml."""
        path = self.site.root / "archive.yml"
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1))


@contextmanager
def sample(root: Path, upstream_key: Key, key: Key) -> Iterator[tuple[Sample, Broken]]:
    """A whole sample; root: an empty directory."""
    (root / "served").mkdir(parents=True)
    with upstream(root / "served") as (url, broken):
        made = Sample(root, url, upstream_key, key)
        made.supply()
        yield made, broken
