"""The check before a worker starts (W-03), in a process of its own, because it imports all of the user's modules.

    python -m horsies.core.worker.check        reads the child's specification from its standard input
"""

from __future__ import annotations

import asyncio
import os
import sys

from horsies.core.errors import ConfigurationError, ErrorCode, HorsiesError
from horsies.core.worker.locate import load_app
from horsies.core.worker.spec import ChildSpec


class CheckFailed(ConfigurationError):
    """The app has errors; the message holds all of them, rendered."""


async def check_in_own_process(spec: ChildSpec) -> None:
    """Raise CheckFailed with everything that is wrong."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "horsies.core.worker.check",
        stdin=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
    )
    _, complaint = await process.communicate(spec.to_json())
    if process.returncode:
        text = complaint.decode("utf-8", "replace").strip()
        raise CheckFailed(f"the check of the app failed:\n{text}", code=ErrorCode.MODULE_EXEC_ERROR)


def main() -> int:
    spec = ChildSpec.from_json(sys.stdin.buffer.read())
    os.chdir(spec.cwd)
    sys.path[:] = list(spec.sys_path)
    try:
        app = load_app(spec.app_locator)
        errors = app.check(live=False)
    except HorsiesError as problem:
        errors = [problem]
    for error in errors:
        print(f"{error}\n", file=sys.stderr)
    sys.stderr.flush()
    # Threads that the user's modules have started must not keep the worker waiting.
    os._exit(1 if errors else 0)


if __name__ == "__main__":
    main()
