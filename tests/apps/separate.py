"""An app whose tasks live in a module of their own, which notes each process that imports it."""

import os
from pathlib import Path

from horsies import AppConfig, Horsies

app = Horsies(AppConfig.for_database_url(os.environ["DATABASE_URL"]))
app.discover_tasks([str(Path(__file__).with_name("separate_tasks.py"))])
