"""`horsies tui`: what goes on, in a terminal (M-80). Read-only.

`lines`, `charts`, `alerts` and the modules `view_*` are plain functions: values of `horsies.monitoring` become lines of
text. `polls` ask the database in the background. `tabs` and `details` say which answers a tab needs and what it
shows. Only `app` and `widgets` know Textual, which is an extra; nothing else imports them.
"""
