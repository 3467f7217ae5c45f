"""Schema 12: sends from SQL."""

from django.db import migrations

from horsies.contrib.django.operations import InstallSchema


class Migration(migrations.Migration):
    atomic = False
    dependencies = (("horsies", "0001_initial"),)
    operations = (InstallSchema(12),)
