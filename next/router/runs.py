"""The open runs, by the ids under which services send their calls back."""

from __future__ import annotations

import uuid
from weakref import WeakValueDictionary

from cutover.tape import Run

RUN_HEADER = "x-cutover-run"
"""Names the run that a request to a service, or a call that comes back from it, belongs to."""
GATEWAY_HEADER = "x-cutover-gateway"
"""Tells a service where its calls go: the address of the run in the gateway of this process."""


class OpenRuns:
    """Finds the run of a call that comes back from a service; runs that nobody holds are gone.

    An id is 32 hexadecimal digits, which are the trace id of W3C's `traceparent` at the same time:
    a service whose HTTP client passes traces on needs to know of nothing.
    """

    def __init__(self) -> None:
        self._runs: WeakValueDictionary[str, Run] = WeakValueDictionary()

    def open(self, run: Run) -> str:
        """Return a new id of a run."""
        name = uuid.uuid4().hex
        self._runs[name] = run
        return name

    def find(self, name: str) -> Run | None:
        """Return the run of an id; None where it is over and forgotten, or of another process."""
        return self._runs.get(name)


def headers(name: str, gateway: str) -> dict[str, str]:
    """Return what a request to a service says of its run; `gateway` is its base URL, or ""."""
    said = {RUN_HEADER: name, "traceparent": f"00-{name}-{name[:16]}-01"}
    return said | ({GATEWAY_HEADER: f"{gateway}/runs/{name}"} if gateway else {})
