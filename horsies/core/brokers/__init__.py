"""What a program does with its database, below the app."""

from horsies.core import libpq as libpq  # before a module of this package imports psycopg
