"""Which measurements `ONLY=` names. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable

SCALE = "scale"


def chosen(text: str, groups: Collection[str], parts: Collection[str]) -> list[str]:
    """The names of the groups, and `scale.part` for the parts of scale, in the order of `text`, each once.

    `scale` means all its parts. A part may be named without `scale.` if no group has its name.
    """
    found: list[str] = []
    unknown: list[str] = []
    for name in filter(None, (word.strip() for word in text.split(","))):
        if name == SCALE:
            found += whole_scale(parts)
        elif name in groups:
            found.append(name)
        elif (part := name.removeprefix(f"{SCALE}.")) in parts:
            found.append(f"{SCALE}.{part}")
        else:
            unknown.append(name)
    if unknown:
        known = [*groups, SCALE, *whole_scale(parts)]
        raise ValueError(f"there is no {', '.join(unknown)}, but {', '.join(known)}")
    return list(dict.fromkeys(found))


def whole_scale(parts: Iterable[str]) -> list[str]:
    return [f"{SCALE}.{part}" for part in parts]


def parts_of_scale(names: Iterable[str]) -> list[str]:
    """The parts among the chosen names."""
    return [name.removeprefix(f"{SCALE}.") for name in names if name.startswith(f"{SCALE}.")]
