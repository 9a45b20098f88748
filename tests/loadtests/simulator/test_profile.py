"""Profiles: overrides in the model's name, options of the command line."""

import pytest

from loadtests.simulator import Cut, HttpError, Profile, SilentBeforeFirst
from loadtests.simulator.profile import merged, overridden, to_arguments
from loadtests.simulator.request import Refusal

DEFAULT = Profile(rate=50)


def test_a_plain_name_changes_nothing() -> None:
    """Real model names use the server's profile."""
    assert overridden(DEFAULT, "gpt-4.1") is DEFAULT


def test_a_name_overrides_what_it_mentions() -> None:
    """Everything else stays as the server has it."""
    profile = overridden(DEFAULT, "sim-chat?ttft_ms=200&reasoning=1&split=1&ending=cut&after=3")
    assert profile == Profile(rate=50, ttft_ms=200, reasoning=1, split=True, ending=Cut(3))


def test_an_ending_is_changed_in_part() -> None:
    """Without `ending`, the server's is kept and its details change."""
    base = Profile(ending=Cut(3))
    assert overridden(base, "sim-chat?after=7") == Profile(ending=Cut(7))
    assert overridden(base, "sim-chat?ending=silent&headers=1") == Profile(
        ending=SilentBeforeFirst(headers=True)
    )


@pytest.mark.parametrize(
    "query",
    [
        "rat=5",
        "rate=fast",
        "rate=-1",
        "ending=bang",
        "after=3",
        "ending=cut&status=500",
        "rate",
        "chunk=0",
    ],
)
def test_what_means_nothing_is_refused(query: str) -> None:
    """Misspelt is 400, never ignored."""
    refusal = overridden(DEFAULT, f"sim-chat?{query}")
    assert isinstance(refusal, Refusal)
    assert (refusal.status, refusal.param) == (400, "model")


@pytest.mark.parametrize(
    "profile",
    [
        Profile(),
        Profile(ttft_ms=2.5, rate=10, split=True, reasoning_field="reasoning"),
        Profile(ending=HttpError(429, 2), times=1),
        Profile(ending=SilentBeforeFirst(headers=True)),
    ],
)
def test_options_of_the_command_line_are_the_same_keys(profile: Profile) -> None:
    """A profile written as options and read again is the same."""
    options = dict(option.removeprefix("--").split("=") for option in to_arguments(profile))
    given: dict[str, object] = {key.replace("-", "_"): text for key, text in options.items()}
    assert merged(Profile(), given) == profile
