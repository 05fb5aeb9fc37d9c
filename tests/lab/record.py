"""lab.json: what a lab says about itself, written when it begins to come up and when it is up."""

import json
from dataclasses import asdict, dataclass, field, fields

from bedplate.sources.files import write_whole
from lab.places import CONTROLLER, SERVICES_HOST, Places, node_names


@dataclass
class Record:
    nodes: int
    phase: str  # starting | up
    pid: int  # of the `lab up` that made it
    since: str
    trees: list[str] = field(default_factory=list)  # names of the cached trees that the hosts stand on
    faults: dict[str, list[str]] = field(default_factory=dict)  # node -> faults that `lab break` put there

    @property
    def hosts(self) -> list[str]:
        return [CONTROLLER, SERVICES_HOST, *node_names(self.nodes)]


def read(places: Places) -> Record | None:
    """None when there is no lab, or a killed `up` left nothing that can be read."""
    try:
        known = {field.name for field in fields(Record)}
        written = json.loads(places.record.read_text())
        return Record(**{name: value for name, value in written.items() if name in known})
    except (OSError, ValueError, TypeError, AttributeError):
        return None


def write(places: Places, record: Record) -> None:
    write_whole(places.record, json.dumps(asdict(record), indent=2, sort_keys=True) + "\n")


def hosts_of_record(places: Places) -> list[str]:
    record = read(places)
    return record.hosts if record else []
