from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("alluvia", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("alluvia")
