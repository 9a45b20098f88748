"""Which lines of captures are about a data subject: by its id, plain or redacted. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from compare.input.damage import ILLEGIBLE
from router.capture.pseudonyms import PSEUDONYM, digest

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from contract.flow import FlowSpec
    from effects.stores.values import DataSubject, SubjectKind

_FIELDS: Mapping[SubjectKind, str] = {
    "user": "user_id",
    "chat": "chat_id|session_id",
    "message": "message_id|reply_to",
}
_VALUE = r'("(?:[^"\\]|\\.)*"|-?\d+)'


_ROUTE_KEYS: Mapping[SubjectKind, str] = {
    "user": "user_id",
    "chat": "session_id",
    "message": "message_id",
}


def declared_fields(kind: SubjectKind, flows: Iterable[FlowSpec]) -> frozenset[str]:
    """Name the fields that hold such an id in the requests of declared flows."""
    paths = (flow.route_keys.get(_ROUTE_KEYS[kind]) for flow in flows if flow.declared)
    return frozenset(path.rpartition(".")[2] for path in paths if path)


class SubjectMatcher:
    """Matches lines of captures that hold a field with the subject's id, wherever it stands.

    An id may have been redacted as a whole, or an address or a name inside it. With the key of the
    pseudonyms both are recognised; without one only the plain id is. `fields` are more names of
    fields that hold such ids.
    """

    def __init__(
        self, subject: DataSubject, key: bytes = b"", fields: Collection[str] = ()
    ) -> None:
        names = "|".join((_FIELDS[subject.kind], *map(re.escape, sorted(fields))))
        self._fields = re.compile(rf'"(?:{names})"\s*:\s*{_VALUE}'.encode())
        self._value = subject.value
        self._key = key
        self._known: dict[bytes, bool] = {}

    def matches(self, line: bytes) -> bool:
        """Whether a line is about the subject."""
        return any(self._is(found) for found in self._fields.findall(line))

    def _is(self, raw: bytes) -> bool:
        if raw not in self._known:
            self._known[raw] = self._stored(raw)
        return self._known[raw]

    def _stored(self, raw: bytes) -> bool:
        try:
            return self._is_id(str(msgspec.json.decode(raw, strict=False)))
        except ILLEGIBLE:
            return False

    def _is_id(self, stored: str) -> bool:
        if stored == self._value:
            return True
        pseudonyms = PSEUDONYM.findall(stored)
        if not self._key or not pseudonyms:
            return False
        digests = [one.rpartition(":")[2].removesuffix(">") for one in pseudonyms]
        return self._fits(PSEUDONYM.split(stored), digests, self._value)

    def _fits(self, literals: list[str], digests: list[str], value: str) -> bool:
        """Whether literals and, between them, texts of these digests make the value."""
        if not value.startswith(literals[0]):
            return False
        rest = value.removeprefix(literals[0])
        if not digests:
            return not rest
        return any(
            digest(self._key, rest[:length]) == digests[0]
            and self._fits(literals[1:], digests[1:], rest[length:])
            for length in range(1, len(rest) + 1)
        )
