"""What a server does at a signal, it also does with us in front of it (X-21)."""

from __future__ import annotations

import signal

from horsies.contrib import stop_signals


def test_x21_signals_are_as_before_when_nobody_waits_for_them() -> None:
    heard: list[str] = []
    before = {number: signal.getsignal(number) for number in stop_signals.SIGNALS}
    try:
        signal.signal(signal.SIGTERM, lambda number, frame: heard.append("the server"))
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        servers = signal.getsignal(signal.SIGTERM)
        with stop_signals.on_stop(lambda: heard.append("first")), stop_signals.on_stop(lambda: 1 / 0):
            with stop_signals.on_stop(lambda: heard.append("second")):
                signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGTERM)
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN, (
                "there was no handler to call, so it is left alone"
            )
        assert heard == ["first", "second", "the server", "first", "the server"]
        assert signal.getsignal(signal.SIGTERM) is servers
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_x21_a_handler_that_was_put_in_front_of_ours_is_called_once() -> None:
    """As libraries do that want to hear a signal too; and then another server starts."""
    heard: list[str] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: heard.append("the server"))
    try:
        with stop_signals.on_stop(lambda: heard.append("first")):
            ours = signal.getsignal(signal.SIGTERM)
            assert callable(ours)
            signal.signal(signal.SIGTERM, lambda number, frame: (heard.append("a library"), ours(number, frame)))
            theirs = signal.getsignal(signal.SIGTERM)
            with stop_signals.on_stop(lambda: heard.append("second")):
                signal.raise_signal(signal.SIGTERM)
        assert heard[:3] == ["first", "second", "a library"]
        assert heard.count("a library") == heard.count("the server") == 1 and heard[-1] == "the server"
        assert signal.getsignal(signal.SIGTERM) is theirs
        signal.signal(signal.SIGTERM, ours)  # the library has gone
        signal.raise_signal(signal.SIGTERM)
        assert heard[-2:] == ["the server"] * 2, "nothing of ours is left, and what was there is still called"
    finally:
        signal.signal(signal.SIGTERM, before)
