"""What a worker holds, and what it reads from a child that has gone."""

from __future__ import annotations

import asyncio
import socket

from horsies.core.child.wire import Kind, pack
from horsies.core.store.tasks import Claimed, ClaimOrder
from horsies.core.worker.children import READ_BYTES, Link
from horsies.core.worker.in_hand import InHand


def claimed(seq: int, queue: str = "default") -> Claimed:
    return Claimed(1, 100, None, "t", seq, "noop", queue, None, None, None, 0, 0, False, None)


def test_l03_a_claim_held_already_is_kept_once() -> None:
    hand = InHand()
    hand.take(claimed(1), is_async=False)
    (first,) = hand.waiting
    assert hand.take(claimed(1), is_async=False) is None
    assert list(hand.waiting) == [first] and hand.holds(first)


def test_l03_a_newer_claim_ends_the_older_one() -> None:
    hand = InHand()
    hand.take(claimed(1), is_async=False)
    (first,) = hand.waiting
    assert hand.take(claimed(2), is_async=False) is first
    hand.drop(first)  # whatever becomes of the older one, the newer one stays
    assert len(hand) == 1 and not hand.holds(first)


def test_w25b_every_byte_is_counted_once_and_released() -> None:
    hand = InHand()
    for seq, name in enumerate(("with result", "refused", "returned"), start=1):
        hand.take(claimed(seq)._replace(id=name, size=1_000), is_async=False)
    with_result, refused, returned = hand.waiting
    hand.forget_arguments(with_result)
    hand.keep_result(with_result, 50)
    hand.keep_result(refused, 700)
    assert (hand.bytes, hand.result_bytes) == (1_750, 750)
    hand.replace_result(refused, 30)
    hand.replace_result(returned, 0)  # its arguments are still here
    assert (hand.bytes, hand.result_bytes) == (1_080, 80)
    for held in (refused, returned, with_result):
        hand.drop(held)
    assert (hand.bytes, hand.result_bytes) == (0, 0)


def test_w24_a_queue_that_gave_all_it_was_asked_for_may_have_more() -> None:
    order = ClaimOrder(["a", "b"], [2, 2], [None, None], 10, 10, None, True, [])
    assert order.is_answered_in_full([claimed(1, "a"), claimed(1, "a"), claimed(1, "b")])
    assert not order.is_answered_in_full([claimed(1, "a"), claimed(1, "b")])
    assert order.is_answered_in_full([claimed(1, "a")] * 10)


async def test_w35_what_a_dead_child_has_said_is_read_though_it_cannot_be_written_to() -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    for end in (ours, theirs):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8 * READ_BYTES)
    heard: list[int] = []
    broken: list[str] = []

    def on_frames(frames: list[tuple[Kind, int, list[bytes]]]) -> None:
        heard.extend(number for _, number, _ in frames)
        link.write(pack(Kind.RUN, 99, b"next"))  # as the dispatcher does when a place is free

    link = Link(ours, on_frames, broken.append)
    reports = [pack(Kind.DONE, number, b"x" * (READ_BYTES // 4)) for number in range(6)]
    theirs.sendall(b"".join(reports))
    theirs.close()
    link.drain()
    await asyncio.sleep(0)
    link.close()
    assert heard == list(range(6)) and broken
