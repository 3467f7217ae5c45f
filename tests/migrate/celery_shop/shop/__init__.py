"""A small web shop, as people write it with Celery. It is what the converter is tried on."""

from .celery import app as celery_app

__all__ = ("celery_app",)
