"""`HorsiesBackend` for Django's tasks framework: `django.tasks` of Django 6.0 and later. An older Django has it as the
package `django_tasks`; then it is the backend of that package.
"""

from importlib import import_module

from horsies.contrib.django.any_backend import RunsOnHorsies
from horsies.contrib.django.project import has_tasks_framework
from horsies.contrib.django.task_runs import Framework

if has_tasks_framework():
    from django.tasks import base, exceptions, signals
    from django.tasks.backends.base import BaseTaskBackend
    from django.utils.json import normalize_json

    FRAMEWORK = Framework(base, signals, exceptions.InvalidTask, exceptions.TaskResultDoesNotExist, normalize_json)

    class HorsiesBackend(RunsOnHorsies, BaseTaskBackend):
        framework = FRAMEWORK

else:
    HorsiesBackend = import_module("horsies.contrib.django.backport").HorsiesBackend  # type: ignore[misc]
