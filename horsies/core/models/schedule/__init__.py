"""The parts of a schedule. Each name is imported at its first use, as in `horsies.core.models.workflow`."""

from typing import TYPE_CHECKING, Any

import horsies

if TYPE_CHECKING:
    from horsies._public_schedules import *  # noqa: F403
else:  # a checker that saw this function would accept every name
    __all__ = sorted(horsies.names_of("horsies._public_schedules"))

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(horsies, name)
