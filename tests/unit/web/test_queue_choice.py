"""Who would run a task in a queue, in words (M-91)."""

from __future__ import annotations

from horsies.web.pages.queue_choice import QueueChoice, options_of, warning_of
from tests.each import each


@each(
    ("choice", "words"),
    [
        (QueueChoice("q", 0, 0), "no live worker serves it"),
        (QueueChoice("q", 1, 1), "1 live worker, which knows mail"),
        (QueueChoice("q", 1, 0), "1 live worker, which does not know mail"),
        (QueueChoice("q", 2, 2), "2 live workers, which know mail"),
        (QueueChoice("q", 2, 0), "2 live workers, none knows mail"),
        (QueueChoice("q", 3, 1), "3 live workers, 1 of them knows mail"),
        (QueueChoice("q", 3, 2), "3 live workers, 2 of them know mail"),
        (QueueChoice("q", 2, 0, 1), "2 live workers, which may know mail"),
    ],
)
def test_m91_a_queue_says_who_would_run_a_task_there(choice: QueueChoice, words: str) -> None:
    assert choice.words("mail") == words


def test_m91_nobody_is_warned_of_workers_that_may_know_a_task() -> None:
    choices = [QueueChoice("good", 1, 1), QueueChoice("silent", 1, 0, 1), QueueChoice("strange", 1, 0)]
    assert warning_of(choices, "good", "mail") == warning_of(choices, "silent", "mail") == []
    [strange] = warning_of(choices, "strange", "mail")
    assert "No live worker of its queue knows this task" in strange and "good, silent." in strange
    [unheard] = warning_of([], "gone", "mail")
    assert unheard == "No live worker serves the queue gone: the new task would wait."


def test_m93_a_queue_whose_name_cannot_be_shown_as_it_is_is_not_offered() -> None:
    offered = options_of(
        [QueueChoice("a\u202eb", 1, 1), QueueChoice("x" * 301, 1, 1), QueueChoice("q", 1, 1)], {"mail"}
    )
    assert [name for name, _ in offered] == ["q"]
