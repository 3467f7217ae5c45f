"""The frames between a supervisor and its children survive every way a stream can be cut, and garbage is refused."""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horsies.core.child import wire
from horsies.core.child.wire import Decoder, Done, Frame, Kind, Outbox, WireError
from tests.each import each

tokens = st.integers(0, 2**64 - 1)
frames = st.tuples(st.sampled_from(Kind), tokens, st.lists(st.binary(max_size=200), max_size=20))


@given(st.lists(frames, max_size=20), st.data())
def test_frames_come_back_however_the_stream_is_cut(sent: list[Frame], data: st.DataObject) -> None:
    stream = b"".join(wire.pack(kind, number, *parts) for kind, number, parts in sent)
    decoder, received, at = Decoder(), [], 0
    while at < len(stream):
        step = data.draw(st.integers(1, len(stream) - at))
        received += decoder.feed(stream[at : at + step])
        at += step
    assert received == sent


@given(st.lists(tokens, max_size=300))
def test_tokens_come_back(given_tokens: list[int]) -> None:
    [(kind, number, parts)] = Decoder().feed(wire.pack_tokens(Kind.GAVE_UP, given_tokens))
    assert (kind, number, wire.tokens_of(parts)) == (Kind.GAVE_UP, 0, given_tokens)


plain_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=100)
dones = st.builds(
    Done,
    ok=st.booleans(),
    result=plain_text,
    error_code=st.none() | plain_text.filter(bool),
    error_message=st.none() | plain_text.filter(bool),
    stopped=st.booleans(),
    run_ns=tokens,
    rss_kb=tokens,
    leave_ms=tokens,
)


@given(tokens, dones)
def test_a_done_report_comes_back(token: int, done: Done) -> None:
    [(kind, number, parts)] = Decoder().feed(wire.pack_done(token, done))
    assert (kind, number, wire.done_of(parts)) == (Kind.DONE, token, done)


def test_a_done_report_with_lone_surrogates_still_travels() -> None:
    done = Done(False, "\ud800", "CODE", "x\udfff", False, 1, 2)
    [(_, _, parts)] = Decoder().feed(wire.pack_done(1, done))
    assert wire.done_of(parts)[:4] == (False, "?", "CODE", "x?")


@given(st.integers(-(2**63), 2**63 - 1))
def test_signed_numbers_come_back(number: int) -> None:
    assert wire.signed(wire.pack_signed(number)) == number


@given(st.binary(min_size=15, max_size=400))
def test_garbage_is_refused_or_read_as_the_frames_it_happens_to_be(garbage: bytes) -> None:
    decoder = Decoder()
    try:
        received = decoder.feed(garbage)
    except WireError:
        return
    # Whatever was read must be what these bytes say.
    stream = b"".join(wire.pack(kind, number, *parts) for kind, number, parts in received)
    assert garbage.startswith(stream)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(struct.pack("<IBQH", 11, 255, 0, 0), id="unknown kind"),
        pytest.param(struct.pack("<IBQH", 11, 0, 0, 0), id="kind zero"),
        pytest.param(struct.pack("<IBQH", (1 << 30) + 1, Kind.RUN, 0, 0), id="absurd size"),
        pytest.param(struct.pack("<IBQH", 5, Kind.RUN, 0, 0), id="shorter than its head"),
        pytest.param(struct.pack("<IBQH", 11, Kind.RUN, 0, 3), id="no room for its parts"),
        pytest.param(struct.pack("<IBQH", 12, Kind.RUN, 0, 0) + b"x", id="bytes without parts"),
        pytest.param(struct.pack("<IBQHI", 16, Kind.RUN, 0, 1, 2) + b"x", id="part longer than the frame"),
        pytest.param(struct.pack("<IBQHI", 17, Kind.RUN, 0, 1, 1) + b"xy", id="part shorter than the frame"),
        pytest.param(b"Traceback (most recent call last):\n", id="a print in the wrong place"),
    ],
)
def test_garbage_is_refused(data: bytes) -> None:
    with pytest.raises(WireError):
        Decoder().feed(data)


@each("parts", [[], [b"1"] * 6, [b"1"] * 8, [b"1", b"\xff", b"", b"", b"0", b"8" * 8, b"8" * 8]])
def test_an_unreadable_done_report_is_refused(parts: list[bytes]) -> None:
    with pytest.raises(WireError):
        wire.done_of(parts)


@each("part", [b"", b"1234567", b"123456789"])
def test_a_number_of_the_wrong_size_is_refused(part: bytes) -> None:
    with pytest.raises(WireError):
        wire.unsigned(part)
    with pytest.raises(WireError):
        wire.signed(part)


def test_a_frame_that_the_other_side_would_refuse_is_not_packed() -> None:
    class Huge(bytes):
        def __len__(self) -> int:
            return wire.MAX_FRAME

    with pytest.raises(WireError):
        wire.pack(Kind.RUN, 1, Huge())


def test_a_large_frame_in_small_pieces_comes_back() -> None:
    part = bytes(8 << 20)
    stream = memoryview(wire.pack(Kind.RUN, 7, part))
    decoder = Decoder()
    received = [frame for at in range(0, len(stream), 4096) for frame in decoder.feed(bytes(stream[at : at + 4096]))]
    assert received == [(Kind.RUN, 7, [part])]


@pytest.fixture
def outboxes() -> Iterator[tuple[Outbox, Outbox]]:
    """Both sides of one: the child's, and the supervisor's."""
    with tempfile.TemporaryFile() as memory:
        memory.truncate(wire.OUTBOX_BYTES)
        yield Outbox(memory.fileno()), Outbox(memory.fileno())


STARTED = wire.pack(Kind.STARTED, 7)


def test_what_was_added_and_not_cleared_is_left_in_an_outbox(outboxes: tuple[Outbox, Outbox]) -> None:
    child, supervisor = outboxes
    assert supervisor.left() == []
    assert child.add(STARTED) and child.add(wire.pack(Kind.DONE, 8, b"x"))
    assert child.content().startswith(STARTED)
    assert supervisor.left() == [(Kind.STARTED, 7, []), (Kind.DONE, 8, [b"x"])]
    child.clear()
    assert supervisor.left() == [] and child.content() == b""


def test_an_outbox_that_is_full_takes_nothing(outboxes: tuple[Outbox, Outbox]) -> None:
    child, supervisor = outboxes
    assert child.add(STARTED)
    assert not child.add(bytes(wire.OUTBOX_BYTES - len(STARTED)))
    assert supervisor.left() == [(Kind.STARTED, 7, [])]


def test_what_changes_in_an_outbox_is_not_lying_there(outboxes: tuple[Outbox, Outbox]) -> None:
    child, supervisor = outboxes
    assert supervisor.lying() == [] == supervisor.lying()
    child.add(STARTED)
    assert supervisor.lying() == []
    child.add(STARTED)
    assert supervisor.lying() == []
    child.clear()
    child.add(STARTED + STARTED)
    assert supervisor.lying() == []  # it is as long as before
    assert supervisor.lying() == [(Kind.STARTED, 7, [])] * 2
    assert supervisor.lying() == []


def test_an_outbox_that_changes_while_it_is_read_is_not_believed(outboxes: tuple[Outbox, Outbox]) -> None:
    child, supervisor = outboxes
    child.add(STARTED)
    assert supervisor.lying() == []
    read = supervisor.content

    def overtaken() -> bytes:
        child.clear()
        child.add(b"\xff" * 40)
        return read()

    supervisor.content = overtaken  # type: ignore[method-assign]
    assert supervisor.lying() == []


def test_an_outbox_with_a_wrong_length_is_empty(outboxes: tuple[Outbox, Outbox]) -> None:
    child, supervisor = outboxes
    child._head[1] = 1 << 40
    assert supervisor.left() == []
