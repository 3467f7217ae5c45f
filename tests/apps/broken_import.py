"""An app whose task module cannot be imported."""

from horsies import AppConfig, Horsies

app = Horsies(AppConfig.for_database_url("postgresql://nobody@localhost:1/none"))
app.discover_tasks(["no_such_module_anywhere"])
