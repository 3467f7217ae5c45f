"""The Django application. Its label is `horsies`: `manage.py migrate horsies`."""

from django.apps import AppConfig
from django.core import checks
from django.test.signals import setting_changed

from horsies.contrib.django import project
from horsies.contrib.django.checks import check_setting


class HorsiesConfig(AppConfig):
    name = "horsies.contrib.django"
    label = "horsies"
    verbose_name = "Tasks and workflows"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        checks.register(check_setting)
        setting_changed.connect(project.on_setting_changed, dispatch_uid="horsies")
        if (made := project.made_app()) is not None:  # a module of models has imported one of tasks
            made.name_modules()
