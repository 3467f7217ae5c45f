"""psycopg, or an error that says what to install. Without libpq, psycopg raises an ImportError that names its own
modules; so what is imported before any other module that uses psycopg gets it from here.
"""

import os

from horsies.core.errors import ConfigurationError, ErrorCode

__all__ = ["LibpqMissing", "psycopg"]


class LibpqMissing(ConfigurationError, ImportError):
    """psycopg cannot load libpq."""


def _missing(problem: ImportError) -> LibpqMissing:
    from horsies.core.distribution import pip_install

    also = ", or unset PSYCOPG_IMPL" if "PSYCOPG_IMPL" in os.environ else ""
    return LibpqMissing(
        "psycopg cannot load libpq, the client library of PostgreSQL",
        code=ErrorCode.LIBPQ_MISSING,
        notes=[f"psycopg: {problem}"],
        help_text=f"{pip_install('binary')}, or install libpq of the system (Debian, Ubuntu: apt install libpq5){also}",
    )


try:
    import psycopg
    import psycopg.conninfo
except ModuleNotFoundError:  # psycopg itself
    raise
except ImportError as problem:
    raise _missing(problem) from None
