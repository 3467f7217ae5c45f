"""The charts of the overview and of queues, from the statistics by minute (M-95)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from horsies.web.pages.frame import Viewer
from horsies.web.svg.markup import Svg

WINDOWS = {"1h": timedelta(hours=1), "6h": timedelta(hours=6), "24h": timedelta(days=1), "7d": timedelta(days=7)}


@dataclass(frozen=True, slots=True)
class Charts:
    """Pictures, and whether they show anything."""

    pictures: Sequence[Svg] = ()
    is_empty: bool = True


async def charts_of(viewer: Viewer, window: str, *, queues: Sequence[str] = ()) -> Charts:
    return Charts()
