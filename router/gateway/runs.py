"""The open runs, by the ids under which services send their calls back."""

import uuid
from collections import Counter
from weakref import WeakValueDictionary

from cutover.tape import Run
from cutover.tape.remote import GATEWAY_HEADER, KEY_HEADER, RUN_HEADER

TRIAL = f"{0xD0C704:032x}"
"""The run that a trial of a service names: its calls are made, and are on no tape."""
REMEMBERED = 10_000
"""Runs of which it is known, when they are gone, whether their calls may still be made."""


class OpenRuns:
    """Finds the run of a call that comes back from a service; runs that nothing holds are gone.

    An id is 32 hexadecimal digits, which are the trace id of W3C's `traceparent` at the same time:
    a service whose HTTP client passes traces on needs to know of nothing.
    """

    def __init__(self) -> None:
        self._runs: WeakValueDictionary[str, Run] = WeakValueDictionary()
        self._performs: dict[str, bool] = {}
        self.uncorrelated: Counter[str] = Counter()
        """Calls at the gateway that went to a provider and on no tape, by reason.

        `no_run` names none, `unknown_trace` has a trace of its own, `run_over` came too late.
        """

    def open(self, run: Run) -> str:
        """Return a new id of a run."""
        name = uuid.uuid4().hex
        self._runs[name] = run
        self._performs[name] = run.policy == "live"
        if run.policy == "live":
            run.on_refusing = lambda: self._performs.update({name: False})
        if len(self._performs) > REMEMBERED:
            del self._performs[next(iter(self._performs))]
        return name

    def find(self, name: str) -> Run | None:
        """Return the run of an id; None where it is over and forgotten, or of another process."""
        return self._runs.get(name)

    def performs(self, name: str) -> bool | None:
        """Return whether calls of a run that is over may be made, off the tape; None: unknown here.

        They may where it was live to its end.
        """
        return self._performs.get(name)


def headers(name: str, gateway: str, key: str = "") -> dict[str, str]:
    """Return what a request to a service says of its run.

    `gateway` is its base URL, or ""; `key` is the gateway's, by which the service knows it.
    """
    said = {RUN_HEADER: name, "traceparent": f"00-{name}-{name[:16]}-01"}
    if gateway:
        said[GATEWAY_HEADER] = f"{gateway}/runs/{name}"
    return said | ({KEY_HEADER: key} if key else {})
