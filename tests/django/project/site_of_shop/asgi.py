import os

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "site_of_shop.settings")
site = get_asgi_application()

from horsies.contrib.django import with_dashboard  # noqa: E402

application = with_dashboard(site, "/jobs")
