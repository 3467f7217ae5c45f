"""A client of the converted shop: it does what the views do, and prints what it gets as JSON. Run beside a worker."""

import json
import sys

from shop import web
from shop.tasks import mail, orders, reports


def main() -> None:
    order = orders.place_order(2, "ann@example.com")
    bought = web.buy(1, 250)
    chord = reports.all_countries(["de", "france"], 2)
    got = {
        "chord": chord.get(timeout_ms=60_000).unwrap(),
        "group": reports.some_countries(3),
        "newsletter": web.announce(["bob@example.com", "eve@example.com"]),
        "direct": web.turnover_now(),
        "daily": reports.daily.send_or_raise("horses").result(timeout_ms=60_000),
        "mail": mail.send_mail.send_or_raise("joe@example.com", "Hello").result(timeout_ms=60_000),
        "receipt": web.receipt(bought),
        "order": order.get(timeout_ms=60_000).unwrap(),
        "celery": sorted(name for name in sys.modules if name.partition(".")[0] == "celery"),
    }
    print(json.dumps(got))


if __name__ == "__main__":
    main()
