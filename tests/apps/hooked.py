"""An app with a child start hook that leaves a trace."""

import os
import time
from pathlib import Path

from horsies import AppConfig, Horsies

app = Horsies(AppConfig.for_database_url(os.environ["DATABASE_URL"]))


@app.on_child_process_start
def leave_a_trace() -> None:
    with (Path(os.environ["TRACES"]) / "hook").open("a") as file:
        file.write(f"{os.getpid()}\n")
    if (Path(os.environ["TRACES"]) / "fail").exists():
        raise RuntimeError("told to fail")
    if (Path(os.environ["TRACES"]) / "dawdle").exists():
        time.sleep(600)


app.on_child_process_start(leave_a_trace)
