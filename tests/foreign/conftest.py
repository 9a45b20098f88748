"""What programs that are not ours find in their environment: a provider and keys."""

from collections.abc import Iterator

import pytest

from loadtests.simulator import Simulator
from tests.support.recordings import answer_other_apis
from tests.support.served import provider


@pytest.fixture
def sim(monkeypatch: pytest.MonkeyPatch) -> Iterator[Simulator]:
    """A simulated provider, where the SDKs look for theirs."""
    with provider() as simulator:
        answer_other_apis(simulator)
        monkeypatch.setenv("OPENAI_BASE_URL", simulator.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", simulator.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "none")
        yield simulator
