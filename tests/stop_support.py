"""A stop at a moment that a test chooses."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable, Collection
from types import CodeType, FrameType
from typing import Any

from horsies.core.tasks.context import StopTask


def is_stopped_at(
    instruction: int,
    files: Collection[str | None],
    act: Callable[[], None],
    stopping: Callable[[], None] = lambda: None,
) -> bool:
    """Call this, and raise StopTask before that instruction in these files, counted from 1; False if there are fewer. A
    signal raises the stop of a task, so it comes between any two instructions. `stopping` is called just before it.
    Nothing of other tests is collected meanwhile: a stop inside a finalizer is only printed by Python."""
    passed = 0

    def pass_one() -> None:
        nonlocal passed
        passed += 1
        if passed == instruction:
            stopping()
            raise StopTask

    gc.disable()
    end = _tell_of_instructions(files, pass_one)
    try:  # not with `contextlib`, which may be one of the files
        act()
    except StopTask:
        pass
    finally:
        end()
        gc.enable()
    return passed >= instruction


if sys.version_info >= (3, 12):  # where `f_trace_opcodes` has no effect on code that was not traced before

    def _tell_of_instructions(files: Collection[str | None], tell: Callable[[], None]) -> Callable[[], None]:
        """Call `tell` before each of them; return what ends this."""
        watch, tool = sys.monitoring, sys.monitoring.OPTIMIZER_ID
        instructions = watch.events.INSTRUCTION

        here = threading.get_ident()

        def seen(code: CodeType, _: int) -> Any:
            if code.co_filename not in files:
                return watch.DISABLE
            # Python tells of the instructions of all threads, and pytest-xdist has some of its own.
            return tell() if threading.get_ident() == here else None

        def end() -> None:
            watch.set_events(tool, 0)
            watch.free_tool_id(tool)
            watch.restart_events()

        watch.use_tool_id(tool, "stops")
        watch.register_callback(tool, instructions, seen)
        watch.set_events(tool, instructions)
        return end

else:

    def _tell_of_instructions(files: Collection[str | None], tell: Callable[[], None]) -> Callable[[], None]:
        """Call `tell` before each of them; return what ends this."""

        def trace(frame: FrameType, event: str, _: object) -> Any:
            if frame.f_code.co_filename not in files:
                return None
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
            if event == "opcode":
                tell()
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        return lambda: sys.settrace(before)
