"""Flags from the provider the configuration names."""

from __future__ import annotations

import time
from decimal import Decimal
from importlib import import_module
from typing import TYPE_CHECKING, Any

from contract.errors import CutoverError
from cutover.own_modules import refuse_hidden
from router.config.addresses import resolve_value
from router.routing.flags import FlagEvaluator

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AsyncExitStack

    from router.config.schema import Settings

FILE = "file"
"""The provider of the file's own values, through the SDK and its hooks."""


class ProviderNotLoaded(CutoverError):
    """A provider or writer of flags is not where the configuration says, or cannot be created."""

    def __init__(self, where: str, why: str) -> None:
        super().__init__(f"flag provider {where!r} cannot be loaded: {why}")


def open_flags(
    settings: Callable[[], Settings], environ: Mapping[str, str], stack: AsyncExitStack
) -> FlagEvaluator | None:
    """Open the configured provider, closed with `stack`; None where the file alone decides.

    Raises `ProviderNotLoaded`, `MissingExtra`, and `ConfigRefused` for a variable that is not set.
    """
    section = settings().flags
    if not section.provider:
        return None
    module = import_module("router.routing.open_feature")  # its library is an extra
    if section.provider == FILE:
        provider = module.FileProvider(settings)
    else:
        provider = create(section.provider, factory_options(section.options, environ))
        if not hasattr(provider, "resolve_boolean_details"):
            why = f"{type(provider).__name__!r} is no OpenFeature provider"
            raise ProviderNotLoaded(section.provider, why)
    source = module.OpenFeatureFlags(provider)
    stack.callback(source.close)
    flagged = FlagEvaluator(source, section.ask, time.monotonic)
    stack.push_async_callback(flagged.aclose)
    return flagged


def create(where: str, options: dict[str, Any]) -> Any:
    """Call the factory at `package.module:factory`; raises `ProviderNotLoaded`."""
    refuse_hidden(where)
    module_name, _, attribute = where.partition(":")
    try:
        factory = getattr(import_module(module_name), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ProviderNotLoaded(where, str(error)) from error
    try:
        return factory(**options)
    except Exception as error:
        # Its message may hold its arguments, secrets included.
        raise ProviderNotLoaded(where, type(error).__name__) from error


def factory_options(options: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, Any]:
    """Return a factory's options: decimals as floats, `env:NAME` looked up."""

    def plain(value: object) -> object:
        match value:
            case Decimal():
                return float(value)
            case str():
                return resolve_value(value, environ)
            case dict():
                return {name: plain(below) for name, below in value.items()}
            case list():
                return [plain(one) for one in value]
            case _:
                return value

    return {name: plain(value) for name, value in options.items()}
