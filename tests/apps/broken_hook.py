"""An app whose child start hook raises."""

import os

from horsies import AppConfig, Horsies

app = Horsies(AppConfig.for_database_url(os.environ["DATABASE_URL"]))


@app.on_child_process_start
def the_hook_that_fails() -> None:
    raise RuntimeError("the licence server does not answer")
