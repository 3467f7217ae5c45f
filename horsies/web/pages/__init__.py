"""The screens. Each module of this package has a list `PAGES`, and the lists are put together here; `app.py` makes routes
of them, which only those reach who may look.
"""

from horsies.web.pages import dialogs, queues, task, tasks, workers, workflows
from horsies.web.screens import Page

PAGES: tuple[Page, ...] = (
    *tasks.PAGES,
    *task.PAGES,
    *queues.PAGES,
    *workflows.PAGES,
    *workers.PAGES,
    *dialogs.PAGES,
)
