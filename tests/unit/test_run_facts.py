"""What a child is told about a run arrives as it was, whatever a row's texts contain."""

from horsies.core.tasks.context import RunFacts, packed
from tests.each import each


@each("text", ["plain", "", "a\x1fb\x00", "ü😀", "\n{}"])
def test_p02_facts_survive_any_text_in_a_row(text: str) -> None:
    facts = RunFacts(text, 3, 2, text + "q", 1.5, 60_000, "flow" + text, text + "node")
    assert RunFacts.unpack(packed(*facts)) == facts


def test_p02_what_is_not_there_is_none() -> None:
    assert RunFacts.unpack(packed("t", 1, 1, "q")) == RunFacts("t", 1, 1, "q", None, None, None, None)


def test_p02_half_a_character_becomes_a_question_mark() -> None:
    assert RunFacts.unpack(packed("a\ud800b", 1, 1, "q")).task_id == "a?b"
