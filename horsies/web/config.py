"""The settings of the dashboard."""

from collections.abc import Collection
from dataclasses import dataclass

from horsies.core.errors import ConfigurationError, ErrorCode
from horsies.core.monitoring.masking import MaskFunction

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class WebConfig:
    """What a dashboard shows and allows.

    `enable_actions`: whether anything can be changed at all; the policy decides who may. `allowed_hosts`: the names
    under which it is called, others get 400; None if an outer application checks that. `mask`: names of arguments and
    fields whose values are not shown, or a function that returns what is shown. `hide_payloads`: show no arguments,
    results, options, error texts, progress, logs and idempotency keys at all.
    """

    enable_actions: bool = False
    allowed_hosts: Collection[str] | None = LOOPBACK_NAMES
    mask: MaskFunction | Collection[str] | None = None
    hide_payloads: bool = False
    title: str = "horsies"

    def __post_init__(self) -> None:
        for name in ("allowed_hosts", "mask"):
            if isinstance(getattr(self, name), str | bytes):
                raise ConfigurationError(
                    f"{name} takes a list of names, not one text",
                    code=ErrorCode.CONFIG_INVALID,
                    help_text=f'{name}=("…",)',
                )
