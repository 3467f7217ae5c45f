import os

from horsies.contrib.django import get_horsies_app

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "site_of_shop.settings")
app = get_horsies_app()
