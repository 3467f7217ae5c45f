"""An app whose workers give up on their database after two tries."""

import os

from horsies import AppConfig, Horsies
from horsies.core.models.recovery import WorkerResilienceConfig

app = Horsies(
    AppConfig.for_database_url(
        os.environ["DATABASE_URL"],
        resilience=WorkerResilienceConfig(db_retry_initial_ms=100, db_retry_max_ms=500, db_retry_max_attempts=2),
    )
)
