"""How Hypothesis runs here: no deadline, because no test says anything about time."""

from hypothesis import HealthCheck, settings

settings.register_profile("edgeflock", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("edgeflock")
