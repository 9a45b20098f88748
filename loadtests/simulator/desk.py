"""From body to script, remembering the latest: load comes in equal requests."""

from functools import lru_cache

import msgspec

from loadtests.simulator.ending import Complete
from loadtests.simulator.models import known
from loadtests.simulator.plan import plan
from loadtests.simulator.profile import Profile, overridden
from loadtests.simulator.refusal import Refusal
from loadtests.simulator.request import ChatCompletionRequest, decode, digest_of
from loadtests.simulator.script import Script

REMEMBERED = 4_096
LARGEST_REMEMBERED = 64 * 1024


class Order(msgspec.Struct, frozen=True):
    """A chat request that can be planned; the digest is hexadecimal."""

    request: ChatCompletionRequest
    profile: Profile
    digest: str
    scripts: dict[bool, Script]

    def script(self, *, spent: bool) -> Script:
        """Plan the answer, once; when its faults are `spent`, a request is answered whole."""
        script = self.scripts.get(spent)
        if script is None:
            ending = Complete() if spent else self.profile.ending
            script = plan(self.request, msgspec.structs.replace(self.profile, ending=ending))
            self.scripts[spent] = script
        return script


class Desk:
    """Reads orders; bodies are the keys of what is remembered, so nothing is decoded twice."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._remembered = lru_cache(REMEMBERED)(self._read)

    def order(self, body: bytes) -> Order | Refusal:
        """Read a request body: 400, 404 or 422 when it cannot be answered."""
        return self._remembered(body) if len(body) <= LARGEST_REMEMBERED else self._read(body)

    def _read(self, body: bytes) -> Order | Refusal:
        request = decode(body)
        if isinstance(request, Refusal):
            return request
        if not known(request.model_name):
            return Refusal(404, f"The model {request.model!r} does not exist.", "model_not_found")
        profile = overridden(self._profile, request.model)
        if isinstance(profile, Refusal):
            return profile
        return Order(request, profile, digest_of(request).hex(), {})
