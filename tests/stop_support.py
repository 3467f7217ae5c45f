"""A stop at a moment that a test chooses."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from types import FrameType
from typing import Any

from horsies.core.tasks.context import StopTask

# For a first round: from Python 3.12 on, code tells its instructions only if it was traced before.
NEVER = sys.maxsize


def is_stopped_at(
    instruction: int,
    files: Collection[str | None],
    act: Callable[[], None],
    stopping: Callable[[], None] = lambda: None,
) -> bool:
    """Call this, and raise StopTask before that instruction in these files, counted from 1; False if there are fewer. A
    signal raises the stop of a task, so it comes between any two instructions. `stopping` is called just before it."""
    passed = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal passed
        if frame.f_code.co_filename not in files:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            passed += 1
            if passed == instruction:
                stopping()
                raise StopTask
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        act()
    except StopTask:
        pass
    finally:
        sys.settrace(before)
    return passed >= instruction
