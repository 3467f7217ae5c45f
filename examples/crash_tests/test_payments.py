"""Is an order charged exactly once, whatever dies? Run it as `pytest examples/crash_tests`: each test runs its scenario
seven times, each time in a real worker that is killed at another moment of the task and recovered by another worker."""

from collections.abc import Iterator

import pytest
from payments import app, charge, charge_hastily, charged, create_tables

from horsies.testing import InvariantBroken, Moment


@pytest.fixture(autouse=True)
def database(horsies_database: str) -> Iterator[None]:
    with app.testing.on_database(horsies_database):
        yield


def test_an_order_is_charged_once_whatever_dies() -> None:
    app.testing.every_crash(
        lambda: charge.send(1, 100),
        check=lambda: charged(1) == 100,
        setup=create_tables,
    )


def test_a_hasty_charge_is_found_out() -> None:
    with pytest.raises(InvariantBroken) as broken:
        app.testing.every_crash(
            lambda: charge_hastily.send(1, 100),
            check=lambda: charged(1) == 100,
            setup=create_tables,
        )
    print(broken.value)
    assert broken.value.report.broken == [Moment.CHILD_KILLED, Moment.RETURNED, Moment.FINALIZING]
