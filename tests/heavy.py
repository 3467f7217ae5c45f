"""What takes minutes is asked for: `make heavy`. A small version of each is part of every run."""

from __future__ import annotations

import os

import pytest

VARIABLE = "HORSIES_HEAVY"

heavy = pytest.mark.skipif(not os.environ.get(VARIABLE), reason=f"takes minutes: {VARIABLE}=1, or make heavy")
