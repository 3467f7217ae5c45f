"""What the tasks of `app.py` and the figures about them both know. Apart, because the app must not be imported before
there is a database for it.
"""

REST_S = 0.2  # how long `rest` takes
PAUSE_S = 1  # before `hang_again` is tried again
