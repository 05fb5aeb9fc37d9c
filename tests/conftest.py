"""Settings of every test: a property is about what holds, not about how fast a busy machine is."""

from hypothesis import HealthCheck, settings

settings.register_profile("bedplate", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("bedplate")
