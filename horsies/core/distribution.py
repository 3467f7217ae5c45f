"""The package that this code comes in. Its distribution is called `horsies-pg`, because the name `horsies` on the
public index belongs to another project; the module, the command and the tables are called `horsies` (E-01).

Every message that names the distribution takes its name from here. `importlib.metadata` is imported only where it is
needed: loading it takes a hundred times as long as the check.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from horsies.core.errors import ConfigurationError, ErrorCode

NAME = "horsies-pg"
MODULE = "horsies"  # also the name of the other distribution, and our own before it was renamed
ROOT = Path(__file__).resolve().parents[2]  # what is imported as `horsies` is in this directory
UNKNOWN = "unknown"  # the version of a source tree that is not installed
DIRECT_URL = "direct_url.json"
_OTHER = re.compile(rf"{MODULE}-\d.*\.(?:dist|egg)-info", re.IGNORECASE)
_WITH_PACKAGES = ("site-packages", "dist-packages")


def pip_install(*extras: str) -> str:
    """The command that adds extras to this installation. pip finds that the package itself is there already."""
    return f'pip install "{requirement(*extras)}"'


def requirement(*extras: str, origin: str = "") -> str:
    """`horsies-pg[web]`, or `horsies-pg[web] @ file:///…` with where it comes from."""
    wanted = f"[{','.join(extras)}]" if extras else ""
    return f"{NAME}{wanted} @ {origin}" if origin else f"{NAME}{wanted}"


def version() -> str:
    from importlib import metadata

    try:
        return metadata.version(NAME)
    except metadata.PackageNotFoundError:
        return UNKNOWN


def origin() -> str | None:
    """The URL that this installation came from, as pip takes it again. None if it came from an index, or from a file
    that is gone."""
    return _origin_of(_own_facts())


def refuse_other() -> None:
    """Stop if another distribution of the module `horsies` is installed: each overwrites files of the other, and which
    of them Python imports depends on the path. This reads the names in a directory or two, which takes a fraction of a
    millisecond."""
    found = next(_others(), None)
    if found is None:
        return
    from importlib import metadata

    facts = _facts(metadata.PathDistribution(found).read_text(DIRECT_URL))
    if _is_here(facts):
        message = f"{MODULE!r} is the former name of the package {NAME!r}, and is still installed"
        note = f"an earlier installation of {ROOT}: {found}"
    else:
        facts = _own_facts()
        message = f"the packages {NAME!r} and {MODULE!r} cannot be used together: both have the module {MODULE!r}"
        note = f"this is {NAME!r}; {MODULE!r} belongs to another project: {found}"
    raise ConfigurationError(
        message,
        code=ErrorCode.OTHER_PACKAGE_INSTALLED,
        notes=[note],
        help_text=f"pip uninstall -y {MODULE} {NAME} && {_install(facts)}",
    )


def _others() -> Iterator[Path]:
    """The metadata of distributions called `horsies`, where packages are installed and beside this code."""
    places = [str(ROOT), *(place for place in sys.path if os.path.basename(place.rstrip("/")) in _WITH_PACKAGES)]
    for place in dict.fromkeys(places):
        try:
            names = os.listdir(place)
        except OSError:
            continue
        for name in names:
            found = Path(place, name)
            # What is empty was left by an uninstall that was interrupted.
            if _OTHER.fullmatch(name) and (
                found.is_file() or any(found.glob("METADATA")) or any(found.glob("PKG-INFO"))
            ):
                yield found


def _install(facts: dict[str, Any]) -> str:
    """The command that installs this package again from where it came."""
    if facts.get("dir_info", {}).get("editable") and _is_here(facts):
        return f"pip install -e {shlex.quote(str(ROOT))}"
    return f'pip install "{requirement(origin=_origin_of(facts) or "")}"'


def _own_facts() -> dict[str, Any]:
    """Where this package came from (PEP 610). A source tree that is not installed came from its directory."""
    from importlib import metadata

    try:
        return _facts(metadata.distribution(NAME).read_text(DIRECT_URL))
    except metadata.PackageNotFoundError:
        return {"url": ROOT.as_uri()} if (ROOT / "pyproject.toml").is_file() else {}


def _origin_of(facts: dict[str, Any]) -> str | None:
    url = facts.get("url")
    if not isinstance(url, str) or (url.startswith("file:") and not _path_of(url).exists()):
        return None
    if source := facts.get("vcs_info"):
        url = f"{source['vcs']}+{url}@{source['commit_id']}"
    return f"{url}#subdirectory={facts['subdirectory']}" if "subdirectory" in facts else url


def _is_here(facts: dict[str, Any]) -> bool:
    url = str(facts.get("url", ""))
    return url.startswith("file:") and _path_of(url).resolve() == ROOT


def _path_of(url: str) -> Path:
    from urllib.parse import unquote, urlsplit

    return Path(unquote(urlsplit(url).path))


def _facts(text: str | None) -> dict[str, Any]:
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
