"""Flags from any OpenFeature provider, through its SDK; and the file as such a provider."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import TYPE_CHECKING, Any

from contract.errors import MissingExtra
from router.config.schema import FLAG_KINDS, Settings
from router.routing.flags import Changed, RefusedFlag, Targeting, defaults
from router.routing.lookup import LookupFailed

try:
    from openfeature import api
    from openfeature.evaluation_context import EvaluationContext
    from openfeature.event import ProviderEvent
    from openfeature.exception import ErrorCode
    from openfeature.flag_evaluation import FlagResolutionDetails, FlagType, Reason
    from openfeature.provider import AbstractProvider, Metadata
    from openfeature.provider.no_op_provider import NoOpProvider
except ImportError as missing:  # pragma: no cover (the extra is installed where tests run)
    raise MissingExtra(adapter="OpenFeatureFlags", extra="flags") from missing

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from openfeature.event import EventDetails
    from openfeature.flag_evaluation import FlagEvaluationDetails
    from openfeature.provider import FeatureProvider

    Flag = tuple[FlagType, str, Any]
    """What the SDK evaluates: type, key, and the default."""


THREADS = 4
"""How many requests may wait at once for a provider that blocks."""

_TYPES = {"switch": FlagType.BOOLEAN, "percent": FlagType.FLOAT, "keys": FlagType.OBJECT}
_PROVIDER_FAULTS = frozenset(
    {ErrorCode.PROVIDER_NOT_READY, ErrorCode.PROVIDER_FATAL, ErrorCode.GENERAL}
)
"""Faults of the provider itself: its other flags could not be evaluated either."""
_domains = count(1)


class OpenFeatureFlags:
    """A provider under a domain of its own; it gets ready in the background.

    A provider that evaluates asynchronously is awaited; one that does not may block, and gets
    threads.
    """

    def __init__(self, provider: FeatureProvider) -> None:
        self._domain = f"cutover-{next(_domains)}"
        self._waits = _asynchronous(provider)
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="flags")
        self._client = api.get_client(self._domain)
        self._handler: Callable[[EventDetails], None] | None = None
        self.name = provider.get_metadata().name
        api.set_provider(provider, self._domain)

    async def values(
        self, targeting: Targeting, defaults: Mapping[str, Any]
    ) -> Mapping[str, object]:
        """Evaluate flags for one request; raises `LookupFailed`."""
        context = _context(targeting)
        flags = [
            (_TYPES[FLAG_KINDS[flag]], f"{targeting.flow}.{flag}", defaults[flag])
            for flag in defaults
        ]
        if self._waits:
            found = [await self._evaluate_async(flag, context) for flag in flags]
        else:
            loop = asyncio.get_running_loop()
            found = await loop.run_in_executor(self._threads, self._evaluate, flags, context)
        values = {name: _value(one) for name, one in zip(defaults, found, strict=True)}
        return {name: value for name, value in values.items() if value is not None}

    def on_change(self, changed: Changed) -> None:
        """Call `changed` on this loop whenever the provider reports that flags have changed."""
        loop = asyncio.get_running_loop()

        def report(details: EventDetails) -> None:
            loop.call_soon_threadsafe(changed, details.flags_changed)

        self._handler = report
        self._client.add_handler(ProviderEvent.PROVIDER_CONFIGURATION_CHANGED, report)

    def close(self) -> None:
        """Release the provider; it shuts down in the background, where it may hang. Idempotent."""
        if self._handler is not None:
            self._client.remove_handler(ProviderEvent.PROVIDER_CONFIGURATION_CHANGED, self._handler)
            self._handler = None
        api.set_provider(NoOpProvider(), self._domain)
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _evaluate(
        self, flags: Sequence[Flag], context: EvaluationContext
    ) -> list[FlagEvaluationDetails[Any]]:
        found = []
        for flag in flags:
            one = self._client.evaluate_flag_details(*flag, context)
            if integer := _as_integer(flag, one):
                one = self._client.evaluate_flag_details(*integer, context)
            found.append(one)
        return found

    async def _evaluate_async(
        self, flag: Flag, context: EvaluationContext
    ) -> FlagEvaluationDetails[Any]:
        found = await self._client.evaluate_flag_details_async(*flag, context)
        if integer := _as_integer(flag, found):
            found = await self._client.evaluate_flag_details_async(*integer, context)
        return found


def _asynchronous(provider: FeatureProvider) -> bool:
    """Whether a provider has an evaluation of its own that can be awaited."""
    name = "resolve_boolean_details_async"
    blocking = getattr(AbstractProvider, name)
    return getattr(type(provider), name, blocking) is not blocking


def _as_integer(flag: Flag, found: FlagEvaluationDetails[Any]) -> Flag | None:
    """Return the flag as an integer where it is no fraction: the SDK distinguishes the two."""
    kind, key, default = flag
    if kind is FlagType.FLOAT and found.error_code is ErrorCode.TYPE_MISMATCH:
        return FlagType.INTEGER, key, int(default)
    return None


def _context(targeting: Targeting) -> EvaluationContext:
    named = {"flow": targeting.flow, "user": targeting.user, "tenant": targeting.tenant}
    known = {name: value for name, value in named.items() if value}
    return EvaluationContext(targeting.key, known)


def _value(found: FlagEvaluationDetails[Any]) -> object:
    code = found.error_code
    if code is None:
        return found.value
    if code is ErrorCode.FLAG_NOT_FOUND:
        return None
    if code in _PROVIDER_FAULTS:
        raise LookupFailed(code.value)
    return RefusedFlag(code.value)


class FileProvider(AbstractProvider):
    """Provides the flags of every flow by `flow.flag`, equal for all requests; never blocks."""

    def __init__(self, settings: Callable[[], Settings]) -> None:
        super().__init__()
        self._settings = settings

    def get_metadata(self) -> Metadata:
        """Return its name."""
        return Metadata("cutover.toml")

    def resolve(
        self,
        flag_key: str,
        default_value: Any,
        evaluation_context: EvaluationContext | None = None,  # noqa: ARG002 - the SDK's signature
    ) -> FlagResolutionDetails[Any]:
        """Return what the file holds."""
        flow, _, name = flag_key.rpartition(".")
        settings = self._settings().flows.get(flow)
        if settings is None or name not in FLAG_KINDS:
            return FlagResolutionDetails(default_value, ErrorCode.FLAG_NOT_FOUND)
        return FlagResolutionDetails(defaults(settings, (name,))[name], reason=Reason.STATIC)

    # The SDK evaluates by type, and checks the value it gets.
    resolve_boolean_details = resolve
    resolve_string_details = resolve
    resolve_integer_details = resolve
    resolve_float_details = resolve
    resolve_object_details = resolve

    async def resolve_boolean_details_async(
        self,
        flag_key: str,
        default_value: Any,
        evaluation_context: EvaluationContext | None = None,
    ) -> FlagResolutionDetails[Any]:
        """As the others; defined here, so that the SDK knows that none of them blocks."""
        return self.resolve(flag_key, default_value, evaluation_context)
