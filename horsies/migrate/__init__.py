"""`horsies migrate-from`: source of Celery or Procrastinate in, changed source and a list of what is left out (X-42).

An edge of its own, and nearly all of it is pure: text goes in, edits and findings come out. Nothing that is read is
imported or run, and the old library need not be installed. `files.py` is the only module that touches the disk.
"""
