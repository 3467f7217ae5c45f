"""The one Horsies app of a Django project. It is on the database that Django's connection names at the moment, so tests
are on their test database; it knows the `tasks.py` of every installed app; and in the test setting it runs what is sent
at once.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cached_property
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import django
from django.apps import apps
from django.conf import settings
from django.core import mail
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import module_has_submodule

from horsies.contrib.django import conf, stale_connections
from horsies.contrib.django.transactions import DjangoSender, DjangoStarter
from horsies.core import discovery
from horsies.core.app import Horsies
from horsies.core.brokers.postgres import PostgresBroker
from horsies.core.models.app import AppConfig
from horsies.core.models.workflow.spec import SpecStarter
from horsies.core.producer.send import Sender

if TYPE_CHECKING:
    from horsies.testing.inline import InlineTask
    from horsies.testing.kit import AppTesting

PACKAGE = "horsies.contrib.django"
LOCATOR = f"{PACKAGE}.worker:app"


class DjangoHorsies(Horsies):
    """The app of a Django project. `database` is its alias in `DATABASES`."""

    def __init__(self) -> None:
        # A test that ends puts back the configuration that it found, which may be one of an earlier database.
        self._followed: dict[int, AppConfig] = {}
        self._config = self._follow(conf.alias())
        self._inline = ExitStack()
        self.django_tasks: dict[str, Any] = {}  # those of Django's own framework, by name
        super().__init__(self._own)
        self.on_child_process_start(stale_connections.begin(self))

    @property
    def config(self) -> AppConfig:
        """The settings. Unless a command or a test has chosen another database, it is the one of Django's connection at
        this moment."""
        if self._config is self._own and self._key != (key := conf.key_of(self._key[0])):
            self._config = self._follow(key[0])
        return self._config

    @config.setter
    def config(self, config: AppConfig) -> None:
        self._config = self._own if id(config) in self._followed else config

    def _follow(self, using: str) -> AppConfig:
        """The configuration for the database of Django's connection at this moment."""
        self._key = conf.key_of(using)
        self._own = conf.make_config()
        self._followed[id(self._own)] = self._own
        return self._own

    @property
    def database(self) -> str:
        """The alias of its database."""
        return str(self._key[0])

    @property
    def is_on_django(self) -> bool:
        """Whether it uses the database of Django's connection, and not one that a command or a test has chosen."""
        return self.config.broker.database_url == self._own.broker.database_url

    def get_broker(self) -> PostgresBroker:
        wanted, broker = self.config.broker, self._broker
        if type(broker) is PostgresBroker and broker.config is not wanted:
            with self._lock:
                self._broker = self._sender = None
            broker.close()
        if self._broker is None and hasattr(mail, "outbox"):  # Django's tests are running
            import_module(f"{PACKAGE}.test").close_before_databases_end(self)
        return super().get_broker()

    @property
    def sender(self) -> Sender:
        broker = self.get_broker()
        if self._sender is None:
            self._sender = DjangoSender(broker, self, resend=self.config.resend_on_transient_err)
        return self._sender

    @cached_property
    def workflow_starter(self) -> SpecStarter:
        return DjangoStarter(self)

    @property
    def testing(self) -> AppTesting:
        kit = super().testing
        kit.ways = import_module(f"{PACKAGE}.test").DjangoWays()
        return kit

    @property
    def is_inline(self) -> bool:
        """Whether what is sent runs at once, in this process."""
        return hasattr(self._broker, "tasks")  # that of tests, which no worker of production imports

    @property
    def inline_tasks(self) -> Mapping[str, InlineTask]:
        """What was run so, by id."""
        broker: Any = self._broker
        found: Mapping[str, InlineTask] = broker.tasks if self.is_inline else {}
        return found

    def read_settings(self) -> None:
        """Read `HORSIES` again, as far as it can change: the database, the limits, and the test setting."""
        self._inline.close()
        follows = self._config is self._own
        own = self._follow(conf.alias())
        self._config = own if follows else self._config
        self.run_inline(conf.option("TESTING") == conf.INLINE)

    @contextmanager
    def as_it_was(self) -> Iterator[None]:
        """A command that is called inside of a program may choose another database, which ends with it."""
        before = self.config
        try:
            yield
        finally:
            self.config = before

    def run_inline(self, wanted: bool) -> None:
        """Begin or end to run what is sent at once, in this process."""
        self._inline.close()
        if wanted:
            self._inline.enter_context(self.testing.inline())

    def name_modules(self) -> None:
        """Name the modules with tasks. They are imported by workers, and by whoever needs to know all tasks."""
        found = [
            f"{config.name}.tasks" for config in apps.get_app_configs() if module_has_submodule(config.module, "tasks")
        ]
        self.discover_tasks([*found, *conf.option("TASK_MODULES", ())])

    def know_all_tasks(self) -> None:
        """Import the modules with tasks that nobody has imported yet. Unlike `import_modules` this suppresses no sends:
        in a web server, other threads send meanwhile."""
        for module in self.get_discovered_task_modules():
            if module not in sys.modules:
                discovery.import_entry(module)


_made: DjangoHorsies | None = None
_lock = threading.RLock()


def project_app() -> DjangoHorsies:
    """The app, made at the first use."""
    global _made
    with _lock:
        if _made is None:
            if not any(entry == PACKAGE or entry.startswith(f"{PACKAGE}.apps.") for entry in settings.INSTALLED_APPS):
                raise ImproperlyConfigured(f"add {PACKAGE!r} to INSTALLED_APPS")
            made = DjangoHorsies()
            _made = made
            made.make_current()
            made.run_inline(conf.option("TESTING") == conf.INLINE)
            if apps.ready:
                made.name_modules()
        return _made


def made_app() -> DjangoHorsies | None:
    """The app, if it was needed so far."""
    return _made


def get_horsies_app() -> DjangoHorsies:
    """Like Django's `get_asgi_application()`: set Django up, and return the app with all modules of tasks named. For a
    module that `horsies worker` and `horsies dev` load."""
    django.setup(set_prefix=False)
    return project_app()


def on_setting_changed(*, setting: str, **_: Any) -> None:
    """`override_settings` and `self.settings()` of tests."""
    if setting == conf.NAME and _made is not None:
        _made.read_settings()


def has_tasks_framework() -> bool:
    """Whether this Django has `django.tasks`."""
    return find_spec("django.tasks") is not None
