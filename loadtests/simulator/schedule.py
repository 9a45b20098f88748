"""When each delta is due: absolute moments, so that delays never add up."""

from loadtests.simulator.draw import stream
from loadtests.simulator.profile import Profile

MICROSECONDS = 1_000_000
PER_MILLISECOND = 1_000
DRAWN = 1 << 16


def due_times(profile: Profile, digest: bytes, count: int) -> list[int]:
    """Microseconds after the request at which each of `count` deltas is due.

    Delta k is due at ttft + k · chunk / rate + jitter_k, and never before the delta ahead of it.
    There is always one entry, so that an answer without deltas has its moment too.
    """
    first = profile.ttft_ms * PER_MILLISECOND
    gap = profile.chunk * MICROSECONDS / profile.rate if profile.rate else 0.0
    if not profile.jitter_ms and not gap:
        return [round(first)] * max(count, 1)
    if not profile.jitter_ms:
        return [round(first + k * gap) for k in range(max(count, 1))]
    spread = profile.jitter_ms * PER_MILLISECOND / DRAWN
    latest = 0
    due = []
    for k, drawn in enumerate(stream(digest, "jitter", max(count, 1))):
        latest = max(latest, round(first + k * gap + drawn * spread))
        due.append(latest)
    return due
