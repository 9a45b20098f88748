"""Switches and shares from an OpenFeature provider, over those of the file.

Importing this needs the package of the extra `flags`.
"""

import asyncio
import importlib
from typing import Any

from openfeature import api
from openfeature.exception import ErrorCode
from openfeature.flag_evaluation import FlagEvaluationDetails
from pydantic import ValidationError

from harness.config import ConfigRefused, FlowTable, sentence
from harness.live import POLL_SECONDS, LiveSettings

_SWITCHES = ("enable_langgraph", "langgraph_fallback")
_SHARES = ("langgraph_percent", "shadow_percent")


class Flags:
    """Asks a provider once a second for the switches and shares of flows, as `chat.shadow_percent`.

    What it does not know, the file says. While one value is refused, or the provider does not
    answer, all values stay as they were, and `LiveSettings.refused` says why.
    """

    def __init__(self, provider: str) -> None:
        """Make the provider with the factory `module:factory`; raises `ConfigRefused`."""
        module, _, factory = provider.partition(":")
        try:
            made = getattr(importlib.import_module(module), factory)()
        except Exception as error:
            raise ConfigRefused(None, [f"flags.provider: {provider!r}: {error!r}"]) from error
        api.set_provider(made, __name__)  # it may become ready later: the file serves until then
        self._client = api.get_client(__name__)

    async def follow(self, live: LiveSettings) -> None:
        """Keep what is in force as the provider says, until cancelled."""
        while True:
            try:
                found = {
                    name: await asyncio.to_thread(self._read, name) for name in live.settings.flows
                }
            except ConfigRefused as refused:
                live.refuse("flags", refused.problems)
            else:
                live.override(found)
            await asyncio.sleep(POLL_SECONDS)

    def _read(self, flow: str) -> dict[str, Any]:
        client, found = self._client, dict[str, Any]()
        flag: FlagEvaluationDetails[Any]
        for name in (*_SWITCHES, *_SHARES):
            key = f"{flow}.{name}"
            if name in _SWITCHES:
                flag = client.get_boolean_details(key, default_value=False)
            else:
                flag = client.get_float_details(key, 0.0)
            if flag.error_code == ErrorCode.TYPE_MISMATCH and name in _SHARES:
                flag = client.get_integer_details(key, 0)
            if flag.error_code is None:
                found[name] = flag.value
            elif flag.error_code != ErrorCode.FLAG_NOT_FOUND:
                raise ConfigRefused(None, [f"flags.{key}: {flag.error_code.value}"])
        try:
            FlowTable.model_validate(found, strict=True)
        except ValidationError as error:
            problems = [f"flags.{flow}.{sentence(one)}" for one in error.errors()]
            raise ConfigRefused(None, problems) from error
        return found
