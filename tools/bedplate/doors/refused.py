"""Connection `bedplate_refused`: what the machines of an example site are reached by, which is: not at all."""

from typing import Any, NoReturn

from ansible.errors import AnsibleError
from ansible.plugins.connection import ConnectionBase


class Connection(ConnectionBase):
    transport = "bedplate_refused"

    def _connect(self) -> NoReturn:
        # No AnsibleConnectionFailure: that would count as "unreachable", and nobody tried to reach it.
        raise AnsibleError(
            "refused: the site's fleet.yml says `example: true`, its machines are invented"
            " (choose a site of yours: ansible-playbook -i SITE/fleet.yml ...)"
        )

    def exec_command(self, cmd: str, in_data: bytes | None = None, sudoable: bool = True) -> Any:  # noqa: ARG002
        self._connect()

    def put_file(self, in_path: str, out_path: str) -> None:  # noqa: ARG002
        self._connect()

    def fetch_file(self, in_path: str, out_path: str) -> None:  # noqa: ARG002
        self._connect()

    def close(self) -> None:
        """There is nothing to close."""
