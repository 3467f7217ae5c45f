"""The screens. Each module of this package has a list `SCREENS`, and the lists are put together here; `app.py` makes
routes of them, which only those reach who may look.
"""

from horsies.web.screens import Screen

SCREENS: tuple[Screen, ...] = ()
