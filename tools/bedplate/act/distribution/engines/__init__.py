"""The engines, by name."""

from collections.abc import Mapping

from bedplate.act.distribution.engine import Mover
from bedplate.act.distribution.engines import http, ssh, torrent
from bedplate.decide.distribution.engines import Engine

ENGINES: Mapping[Engine, Mover] = {Engine.TORRENT: torrent.move, Engine.HTTP: http.move, Engine.SSH: ssh.move}
