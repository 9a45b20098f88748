"""The configuration as an OpenFeature provider: hooks and other code see what the router sees."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from openfeature.exception import ErrorCode
from openfeature.flag_evaluation import FlagResolutionDetails, Reason
from openfeature.provider import AbstractProvider, Metadata

from router.config import FLAG_KINDS
from router.routing.flags.values import defaults

if TYPE_CHECKING:
    from collections.abc import Callable

    from openfeature.evaluation_context import EvaluationContext

    from router.config import Settings


class FileProvider(AbstractProvider):
    """Knows the flags of every flow by `flow.flag`, equal for everybody; never blocks."""

    def __init__(self, settings: Callable[[], Settings]) -> None:
        super().__init__()
        self._settings = settings

    def get_metadata(self) -> Metadata:
        """Give its name."""
        return Metadata("cutover.toml")

    def resolve(
        self,
        flag_key: str,
        default_value: Any,
        evaluation_context: EvaluationContext | None = None,  # noqa: ARG002 - the SDK's signature
    ) -> FlagResolutionDetails[Any]:
        """Give what the file says."""
        flow, _, name = flag_key.rpartition(".")
        settings = self._settings().flows.get(flow)
        if settings is None or name not in FLAG_KINDS:
            return FlagResolutionDetails(default_value, ErrorCode.FLAG_NOT_FOUND)
        return FlagResolutionDetails(defaults(settings, (name,))[name], reason=Reason.STATIC)

    # The SDK asks by type and checks what it is given.
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
        """As the others; its own, which says that none of them blocks."""
        return self.resolve(flag_key, default_value, evaluation_context)
