"""The mutants fit the code: each finds the text that it changes. Running them takes minutes; that is done by hand."""

from __future__ import annotations

import pytest

from tests.proof import mutants
from tests.proof.mutants import ROOT, Mutant
from tests.proof_workflows import mutants as workflow_mutants


@pytest.mark.parametrize("mutant", [*mutants.MUTANTS, *workflow_mutants.MUTANTS], ids=lambda mutant: mutant.name)
def test_a_mutant_finds_what_it_changes(mutant: Mutant) -> None:
    text = (ROOT / mutant.file).read_text(encoding="utf-8")
    assert mutant.old in text and text.replace(mutant.old, mutant.new) != text
