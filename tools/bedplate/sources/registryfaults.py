"""What a registry can do wrong, by what the caller does next."""

from bedplate.model.faults import BedplateError


class RegistryFault(BedplateError):
    """A registry did not give what was asked for."""


class Unreachable(RegistryFault):
    """It does not answer, or only with errors of its own: what it has is unknown."""

    exit_code = 4


class Unauthorised(RegistryFault):
    """It wants other credentials."""

    exit_code = 2


class NotFound(RegistryFault):
    """It does not have this."""

    exit_code = 2


class WrongBytes(RegistryFault):
    """It answered with something else than was asked for."""

    exit_code = 3
