"""What `manage.py horsies worker` and its children load. `DJANGO_SETTINGS_MODULE` says for which project."""

from horsies.contrib.django.project import get_horsies_app

app = get_horsies_app()
