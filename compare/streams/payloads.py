"""Payloads: whether the JSON of an event is what its flow says it carries."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple, get_args

import msgspec

from contract.wire import Wire

_AT = re.compile(r"^(?P<why>.*?)(?: - at `(?:key in )?\$(?P<path>.*)`)?$", re.DOTALL)


class PayloadFault(NamedTuple):
    """What is wrong with a payload: at which path below it ("" the whole), and why."""

    path: str
    why: str


def not_json(trouble: Exception) -> PayloadFault:
    """Return the fault of a payload that cannot be decoded at all."""
    if isinstance(trouble, RecursionError):
        return PayloadFault("", "is not JSON: nested too deeply")
    return PayloadFault("", f"is not JSON: {str(trouble).lower()}")


NO_OBJECT = PayloadFault("", "is not a JSON object")


class Payloads:
    """Checks the payloads of one wire strictly: missing keys, wrong types, unknown keys."""

    def __init__(self, wire: Wire) -> None:
        structs = get_args(wire.events) or ((wire.events,) if wire.events is not None else ())
        self._decoders: Mapping[str, msgspec.json.Decoder[Any]] = {
            str(struct.__struct_config__.tag): msgspec.json.Decoder(struct) for struct in structs
        }

    def fault(self, name: str, data: str | bytes) -> PayloadFault | None:
        """Find what is wrong with an event's payload; of names it does not know, nothing."""
        decoder = self._decoders.get(name)
        if decoder is None:
            return None
        try:
            decoder.decode(data)
        except msgspec.ValidationError as trouble:
            return _fault(str(trouble))
        return None


def _fault(message: str) -> PayloadFault:
    found = _AT.match(message)
    if found is None:
        return PayloadFault("", message)
    return PayloadFault(found["path"] or "", _plainly(found["why"]))


def _plainly(why: str) -> str:
    return why[:1].lower() + why[1:]
