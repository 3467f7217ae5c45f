"""What a child must know to serve an app. It is sent as JSON to the fork server, never on a command line."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, dataclass, field


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """The same for all children of a worker. `app_locator` is resolved by `locate.load_app` in the child itself."""

    app_locator: str
    imports: tuple[str, ...] = ()  # further modules to import, dotted or `.py`
    beat_interval_ms: int = 1_000
    hook_timeout_ms: int = 10_000  # W-45, for each hook
    goodbye_timeout_ms: int = 3_000  # for what user code wants to do at the end
    concurrency: int = 1  # async tasks at a time
    loglevel: str = "INFO"
    log_format: str = "text"
    is_helper: bool = False  # asked about recovery instead of running tasks (W-01)
    recovery_hook_timeout_ms: int = 10_000  # R-74, for each call of a handler
    sys_path: tuple[str, ...] = field(default_factory=lambda: tuple(sys.path))
    cwd: str = field(default_factory=os.getcwd)
    journal: str | None = None  # the file in which starts are noted
    database_url: str | None = field(default=None, repr=False)  # replaces the app's own; holds a password

    def to_json(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_json(cls, text: bytes) -> ChildSpec:
        fields = json.loads(text)
        return cls(**{**fields, "imports": tuple(fields["imports"]), "sys_path": tuple(fields["sys_path"])})
