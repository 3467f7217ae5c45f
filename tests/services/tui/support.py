"""Somebody in front of the terminal dashboard: presses keys, and sees what stands on the screen."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from textual.pilot import Pilot

from horsies.core.brokers.postgres import PostgresBroker
from horsies.tui.app import TuiApp
from horsies.tui.source import BrokerSource, DataSource
from horsies.tui.widgets import RowList
from tests.support import eventually
from tests.tui_support import screen_of

SIZE = (100, 40)


@dataclass
class Viewer:
    """`app` runs without a terminal; its screen is the same."""

    app: TuiApp
    pilot: Pilot[None]

    @property
    def screen(self) -> str:
        return screen_of(self.app)

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)

    async def type(self, text: str) -> None:
        """Each character is a key."""
        names = {"/": "slash", " ": "space", ".": "full_stop", "-": "minus", "_": "underscore", ":": "colon"}
        await self.pilot.press(*(names.get(char, char) for char in text))

    async def sees(self, *texts: str, without: tuple[str, ...] = ()) -> str:
        """Wait until all of these stand on the screen, and none of the others."""

        async def seen() -> bool:
            await self.pilot.pause()
            screen = self.screen
            missing = [text for text in texts if text not in screen]
            there = [text for text in without if text in screen]
            assert not missing and not there, f"missing {missing}, unwanted {there} on the screen:\n{screen}"
            return True

        await eventually(seen, what=f"{texts} on the screen")
        return self.screen

    async def selects(self, text: str) -> None:
        """Move the cursor down to the row that contains the text."""
        await self.sees(text)
        await self.press("home")
        for _ in range(len(self.list.rows)):
            if text in self.marked:
                return
            await self.press("down")
        raise AssertionError(f"{text} cannot be selected:\n{self.screen}")

    @property
    def marked(self) -> str:
        """The line with the cursor."""
        return next((line for line in self.screen.splitlines() if line.startswith("> ")), "")

    @property
    def list(self) -> RowList:
        return self.app.query_one(RowList)

    @property
    def copied(self) -> Any:
        """What is in the clipboard."""
        return json.loads(self.app.clipboard)


@contextlib.asynccontextmanager
async def watching(
    broker: PostgresBroker | None = None, *, source: DataSource | None = None, size: tuple[int, int] = SIZE, **how: Any
) -> AsyncIterator[Viewer]:
    """The dashboard of a broker or of another source, until the block ends."""
    if source is None:
        assert broker is not None
        source = BrokerSource(broker)
    app = TuiApp(source, tick_rate=20, frame_rate=30, **how)
    async with app.run_test(size=size) as pilot:
        yield Viewer(app, pilot)
