"""/metrics, /healthz and /readyz, for every process that has something to show.

`/healthz` says that the process is alive and its loop runs: the answer itself is the proof. `/readyz` says whether the
process does its work, with 503 and the reasons if it does not. Both are JSON.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from time import monotonic
from typing import TypeAlias

from horsies.core.errors import ConfigurationError, ErrorCode
from horsies.core.monitoring.exposition import Family, of_reading
from horsies.core.monitoring.http import Answer, HttpServer, json_answer
from horsies.core.monitoring.reading import Reader

LOOK_AGAIN_S = 1.0  # the same text is given out so long

Problems: TypeAlias = Callable[[], Awaitable[dict[str, str]]]
Own: TypeAlias = Callable[[], Awaitable[Iterable[Family]]]
Encode: TypeAlias = Callable[[Iterable[Family], str], tuple[bytes, str]]


def encoder() -> Encode:
    """The function that encodes metric families for the accepted types. Without the extra, it raises an error that says
    what to install."""
    try:
        from horsies.core.monitoring.prometheus import encode
    except ImportError:
        raise ConfigurationError(
            "metrics need the package prometheus-client, which is not installed",
            code=ErrorCode.CLI_INVALID_ARGS,
            help_text="pip install 'horsies[metrics]'",
        ) from None
    return encode


class Endpoints:
    """`problems` says why the process is not ready, `own` what the process counts itself."""

    def __init__(self, host: str, port: int, reader: Reader, problems: Problems, own: Own | None = None) -> None:
        self._reader = reader
        self._problems = problems
        self._own = own
        self._encode = encoder()
        self._began = monotonic()
        self._texts: dict[str, tuple[float, Answer]] = {}
        self._encoding = asyncio.Lock()
        routes = {"/metrics": self._metrics, "/healthz": self._healthz, "/readyz": self._readyz}
        self._server = HttpServer(host, port, routes)

    async def open(self) -> None:
        await self._server.open()

    @property
    def url(self) -> str:
        return self._server.url

    async def close(self) -> None:
        await self._server.close()

    async def _healthz(self, _headers: Mapping[str, str]) -> Answer:
        return json_answer({"status": "alive", "seconds": round(monotonic() - self._began, 3)})

    async def _readyz(self, _headers: Mapping[str, str]) -> Answer:
        reasons = await self._problems()
        return json_answer({"status": "not ready" if reasons else "ready", "reasons": reasons}, is_well=not reasons)

    async def _metrics(self, headers: Mapping[str, str]) -> Answer:
        accept = "openmetrics" if "application/openmetrics-text" in headers.get("accept", "") else ""
        async with self._encoding:
            made, answer = self._texts.get(accept, (0.0, None))
            if answer is None or monotonic() - made >= LOOK_AGAIN_S:
                answer = await self._encoded("application/openmetrics-text" if accept else "")
                self._texts[accept] = (monotonic(), answer)
            return answer

    async def _encoded(self, accept: str) -> Answer:
        families = list(of_reading(await self._reader.reading()))
        if self._own is not None:
            families += await self._own()
        # Beside the loop, which has other things to do than to put texts together.
        return Answer(*await asyncio.to_thread(self._encode, families, accept))
