"""A site on disk: the only reader of its files. It never writes one."""

import contextlib
import json
from collections.abc import Callable
from difflib import SequenceMatcher
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from bedplate.decide.check import Contents
from bedplate.decide.lockdoc import LockDocument, parse_lock
from bedplate.decide.surroundings import surroundings
from bedplate.model.accounts import Account, parse_accounts
from bedplate.model.archive import ArchiveDefinition, parse_archive
from bedplate.model.canonical import sha256
from bedplate.model.environment import Environment, parse_environment
from bedplate.model.faults import BadInput, Fault, Refused
from bedplate.model.fleet import Fleet, parse_fleet
from bedplate.model.hardware import HardwareModel, parse_model
from bedplate.model.healthprofile import SUFFIX, HealthProfile, parse_health_profile
from bedplate.model.image import ImageDefinition, parse_image
from bedplate.model.ledgersite import LedgerSite, parse_ledger_site
from bedplate.sources.ledgeraddress import absolute

LOCK_SUFFIX = ".lock.json"


class Site:
    """Files are read when they are asked for, and once."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self._environments: dict[str, Environment] = {}
        self._models: dict[str, HardwareModel] = {}
        self._images: dict[str, ImageDefinition] = {}
        self._health: dict[str, HealthProfile] = {}

    @property
    def fleet_path(self) -> Path:
        return self.root / "fleet.yml"

    @cached_property
    def fleet(self) -> Fleet:
        rows = self.root / "nodes.csv"
        faults: list[Fault] = []
        texts = {}
        for path in (self.fleet_path, rows):
            try:
                texts[path] = self._text(path, "write it: docs/site.md has its columns and keys")
            except BadInput as fault:
                faults += fault.faults
        if faults:
            raise BadInput(faults)
        return parse_fleet(texts[self.fleet_path], texts[rows], fleet_file=shown(self.fleet_path), csv_file=shown(rows))

    def environment_names(self) -> list[str]:
        """The environments that have a file, sorted."""
        return _stems(self.root / "environments", ".yml")

    def lock_names(self) -> list[str]:
        """The environments that have a lock, sorted."""
        return _stems(self.root / "environments", LOCK_SUFFIX)

    def model_names(self) -> list[str]:
        return [name for name in _stems(self.root / "models", ".yml") if not f"{name}.yml".endswith(SUFFIX)]

    def image_definitions(self) -> list[str]:
        """The directories with the definition of an image: images/DIR, sorted."""
        return sorted(f"images/{path.parent.name}" for path in (self.root / "images").glob("*/image.yml"))

    def environment_path(self, name: str) -> Path:
        return self.root / "environments" / f"{name}.yml"

    def environment(self, name: str) -> Environment:
        if name not in self._environments:
            self._known("environment", name, self.environment_names(), self.root / "environments")
            path = self.environment_path(name)
            self._environments[name] = parse_environment(self._text(path), shown(path), name=name)
        return self._environments[name]

    def acceptance_path(self, model: str) -> Path:
        """Where the profile lies by which machines of a hardware model are accepted."""
        return self.root / "acceptance" / f"{model}.yml"

    def model_path(self, name: str) -> Path:
        return self.root / "models" / f"{name}.yml"

    def model(self, name: str) -> HardwareModel:
        if name not in self._models:
            self._known("hardware model", name, self.model_names(), self.root / "models")
            path = self.model_path(name)
            self._models[name] = parse_model(self._text(path), shown(path), name=name)
        return self._models[name]

    def health_profile_names(self) -> list[str]:
        """The hardware models with a health profile, sorted."""
        return _stems(self.root / "models", SUFFIX)

    def health_profile(self, model: str) -> HealthProfile:
        """What a healthy machine of a model shows: models/NAME.health.yml.

        Raises:
            BadInput: there is none, or it is wrong.
        """
        path = self.root / "models" / f"{model}{SUFFIX}"
        if model not in self._health:
            text = self._text(path, "write it: without one nothing is known to be healthy; docs/health.md has its keys")
            self._health[model] = parse_health_profile(text, shown(path), name=model)
        return self._health[model]

    @cached_property
    def surroundings(self) -> dict[str, Any]:
        """What templates may know beyond their node.

        Raises:
            BadInput: the fleet or a model of it cannot be read.
        """
        models = {kind.model: self.model(kind.model) for kind in self.fleet.kinds.values()}
        environments: dict[str, tuple[str, ...]] = {}
        for name in self.environment_names():
            with contextlib.suppress(BadInput):  # its own faults are told where it is asked for
                environments[name] = self.environment(name).kinds
        return surroundings(self.fleet, models, self.host_keys, environments)

    @cached_property
    def accounts(self) -> tuple[Account, ...]:
        """Who may use the cluster; nobody but root where the site has no accounts.yml.

        Raises:
            BadInput: it cannot be read.
        """
        path = self.root / "accounts.yml"
        return parse_accounts(self._text(path), shown(path)) if path.exists() else ()

    @cached_property
    def ledger_site(self) -> LedgerSite:
        """Who signs the ledger's head, and where signed heads are kept; nobody and nowhere without a ledger.yml.

        Raises:
            BadInput: it cannot be read.
        """
        path = self.root / "ledger.yml"
        return parse_ledger_site(self._text(path), shown(path)) if path.exists() else LedgerSite()

    def secret_path(self, name: str) -> Path:
        """A secret, which no lock, ledger or repository holds: a file of its own, plain or of ansible-vault."""
        return self.root / "secrets" / name

    @property
    def host_keys(self) -> list[str]:
        """The lines of the site's known_hosts; none where nobody has connected yet."""
        try:
            text = self.known_hosts_path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return []
        return [line for line in map(str.strip, text.splitlines()) if line and not line.startswith("#")]

    @property
    def archive_path(self) -> Path:
        return self.root / "archive.yml"

    @cached_property
    def archive(self) -> ArchiveDefinition:
        """What the site's package archive is to hold."""
        return parse_archive(self._text(self.archive_path, "write it: docs/archive.md"), shown(self.archive_path))

    def image_path(self, definition: str) -> Path:
        """The directory of a definition: `images/train` as the environment file names it."""
        return self.root / definition

    def image(self, definition: str) -> ImageDefinition:
        """The definition in a directory of the site: `images/train`."""
        if definition not in self._images:
            self._known("image definition", definition, self.image_definitions(), self.root / "images")
            path = self.image_path(definition) / "image.yml"
            self._images[definition] = parse_image(self._text(path), shown(path))
        return self._images[definition]

    def lock_path(self, name: str) -> Path:
        return self.root / "environments" / f"{name}{LOCK_SUFFIX}"

    def lock(self, name: str) -> LockDocument:
        """The lock of an environment.

        Raises:
            BadInput: there is none, or it is damaged; or there is no such environment.
        """
        path = self.lock_path(name)
        if not path.exists():  # a lock of an environment whose file is gone is one nevertheless
            there = sorted({*self.environment_names(), *self.lock_names()})
            self._known("environment", name, there, self.root / "environments")
        return parse_lock(self._text(path, f"lock the environment: bedplate lock {name}"), shown(path))

    def key_path(self, key: str) -> Path:
        """The key that signs an archive: `keys/archive.asc` as the environment file names it."""
        return self.root / key

    @property
    def builds_path(self) -> Path:
        return self.root / "builds"

    def build_record(self, image_name: str) -> dict[str, Any]:
        """The build record of an image, by the image's name.

        Raises:
            BadInput: the image was never built here, or the record is damaged.
        """
        path = self.builds_path / f"{image_name}.json"
        text = self._text(path, "build the image: bedplate image build")
        try:
            record = json.loads(text)
        except json.JSONDecodeError as fault:
            found = f"no JSON: {fault.msg}"
            raise BadInput([Fault(shown(path), fault.lineno, found, "build the image again")]) from fault
        if not isinstance(record, dict):
            raise BadInput([Fault(shown(path), 1, "no build record", "build the image again")])
        return record

    @property
    def ledger_url(self) -> str:
        """The ledger's address; a relative SQLite file lies in the site."""
        return absolute(self.fleet.ledger, self.root)

    @property
    def ledger_files_path(self) -> Path:
        """Where logs and files lie that the ledger names."""
        return self.root / "ledger-files"

    @property
    def known_hosts_path(self) -> Path:
        return self.root / self.fleet.ssh.known_hosts

    @property
    def identity_path(self) -> Path:
        return self.root / Path(self.fleet.ssh.identity_file).expanduser()

    def refuse_example(self, doing: str, instead: str = "choose your site with --site or BEDPLATE_SITE") -> None:
        """Refuse what would contact a node of the example site.

        Raises:
            Refused: the site says `example: true`.
        """
        if self.fleet.example:
            raise Refused(
                f"{doing}: refused, {shown(self.fleet_path)}:{self.fleet.document.line('example')} says"
                f" `example: true`; its machines are invented ({instead})"
            )

    def contents(self) -> tuple[Contents, list[Fault]]:
        """All files of the site, and the faults of each."""
        faults: list[Fault] = []

        def read[T](reader: Callable[[], T]) -> T | None:
            try:
                return reader()
            except BadInput as fault:
                faults.extend(fault.faults)
                return None

        environments = {name: read(partial(self.environment, name)) for name in self.environment_names()}
        images = {name: read(partial(self.image, name)) for name in self.image_definitions()}
        for name in self.health_profile_names():
            read(partial(self.health_profile, name))
        named = [environment.archive.key for environment in environments.values() if environment]
        named += [f"{definition}/{image.dockerfile}" for definition, image in images.items() if image]
        if self.archive_path.exists():
            read(lambda: self.archive)
        contents = Contents(
            fleet=read(lambda: self.fleet),
            environments=environments,
            models={name: read(partial(self.model, name)) for name in self.model_names()},
            images=images,
            locks={name: read(partial(self.lock, name)) for name in self.lock_names()},
            digests={path: sha256((self.root / path).read_bytes()) for path in named if (self.root / path).is_file()},
            root=shown(self.root),
        )
        return contents, faults

    def _known(self, what: str, name: str, known: list[str], folder: Path) -> None:
        if name not in known:
            likeness = partial(SequenceMatcher, None, name)
            nearest = sorted(known, key=lambda one: (-likeness(one).ratio(), one))
            listed = ", ".join(nearest) if known else "none"
            raise BadInput([Fault(shown(folder), None, f'no {what} "{name}"', f"there: {listed}")])

    def _text(self, path: Path, remedy: str = "") -> str:
        try:
            return path.read_bytes().decode()
        except (FileNotFoundError, NotADirectoryError) as fault:
            raise BadInput([Fault(shown(path), None, "no such file", remedy)]) from fault
        except UnicodeDecodeError as fault:
            line = fault.object.count(b"\n", 0, fault.start) + 1
            found = f"byte 0x{fault.object[fault.start]:02x} is not UTF-8"
            raise BadInput([Fault(shown(path), line, found, "save the file as UTF-8")]) from fault
        except OSError as fault:
            raise BadInput([Fault(shown(path), None, f"cannot be read: {fault.strerror}", "")]) from fault


def open_site(root: Path) -> Site:
    """A site by its directory.

    Raises:
        BadInput: the directory has no fleet.yml.
    """
    site = Site(root)
    if not site.fleet_path.is_file():
        remedy = "choose a site with --site DIR or BEDPLATE_SITE"
        raise BadInput([Fault(shown(site.root), None, "no site: it has no fleet.yml", remedy)])
    return site


def shown(path: Path) -> str:
    """A path for a message: relative where that is shorter to read and to paste."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def _stems(folder: Path, suffix: str) -> list[str]:
    """Names of the files with a suffix, without it; hidden files (half-written ones) are none of them."""
    if not folder.is_dir():
        return []
    return sorted(
        path.name.removesuffix(suffix)
        for path in folder.iterdir()
        if path.name.endswith(suffix) and not path.name.startswith(".") and path.is_file()
    )
