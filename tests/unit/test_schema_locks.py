"""Keys of advisory locks are the same in every process and every version, or two workers would not meet."""

from __future__ import annotations

import hashlib

from horsies.core.schema import install
from tests.each import each


@each(
    ("purpose", "key"),
    [
        ("horsies:schema", -6_135_853_964_765_756_307),
        ("horsies:claim", 8_776_990_405_558_965_821),
        ("horsies:sweep", -315_962_102_366_576_087),
        ("horsies:retention", -4_736_923_633_081_364_795),
        ("horsies:schedule:nightly", 3_881_643_609_785_733_170),
        ("horsies:worker:w1", -3_939_089_784_020_712_844),
    ],
)
def test_d62_keys_are_pinned(purpose: str, key: int) -> None:
    assert install.lock_key(purpose) == key


def test_d62_a_key_is_the_first_eight_bytes_of_the_hash_as_a_signed_number() -> None:
    digest = hashlib.sha256(b"horsies:schema").hexdigest()[:16]
    unsigned = int(digest, 16)
    assert install.lock_key("horsies:schema") == (unsigned if unsigned < 2**63 else unsigned - 2**64)


def test_d62_the_purposes_have_the_documented_names() -> None:
    assert [install.SCHEMA, install.CLAIM, install.SWEEP, install.RETENTION] == [
        "horsies:schema",
        "horsies:claim",
        "horsies:sweep",
        "horsies:retention",
    ]
    assert install.schedule_purpose("nightly") == "horsies:schedule:nightly"
    assert install.worker_purpose("w1") == "horsies:worker:w1"
