"""The tests of this directory with each Python that is found, and the oldest and the newest Django that it can have."""

from __future__ import annotations

import subprocess

import pytest

from tests.django.versions import NEWEST, ROOT, Pair, pairs, prepare, sources

pytestmark = [pytest.mark.slow("makes an environment for each pair of versions"), pytest.mark.timeout(1500)]
TESTS = ("-m", "pytest", "-q", "-n", "2", "--dist", "loadscope", f"--ignore={__file__}", "tests/django")


@pytest.mark.parametrize("pair", pairs(), ids=lambda pair: pair.bin.parent.name)
def test_every_test_of_django_passes_with(pair: Pair) -> None:
    version = prepare(pair)
    run(pair, *TESTS)
    run(pair, *TESTS, "--slow")
    if pair.django == NEWEST:
        run(pair, "-m", "tests.django.conformance", str(sources(pair, version)))


def run(pair: Pair, *words: str) -> None:
    done = subprocess.run([str(pair.bin / "python"), *words], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
