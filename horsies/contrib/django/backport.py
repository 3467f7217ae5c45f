"""`HorsiesBackend` for the package `django_tasks`, which is Django's tasks framework for older versions."""

from django_tasks import base, exceptions, signals
from django_tasks.backends.base import BaseTaskBackend
from django_tasks.utils import normalize_json

from horsies.contrib.django.any_backend import RunsOnHorsies
from horsies.contrib.django.task_runs import Framework


class HorsiesBackend(RunsOnHorsies, BaseTaskBackend):
    framework = Framework(base, signals, exceptions.InvalidTaskError, exceptions.TaskResultDoesNotExist, normalize_json)
