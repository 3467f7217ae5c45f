"""The mutants of the proofs are up to date. Running them takes long, so nobody would notice until the next time."""

from __future__ import annotations

import pytest

from tests.proof import mutants
from tests.proof.mutants import ROOT, Mutant
from tests.proof_workflows import mutants as mutants_of_workflows


@pytest.mark.parametrize("mutant", [*mutants.MUTANTS, *mutants_of_workflows.MUTANTS], ids=lambda mutant: mutant.name)
def test_what_a_mutant_breaks_is_still_in_the_code(mutant: Mutant) -> None:
    assert mutant.old in (ROOT / mutant.file).read_text(encoding="utf-8")
    assert mutant.new != mutant.old
