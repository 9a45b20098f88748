"""What is said when an optional library is missing."""

from __future__ import annotations

from contract.errors import CutoverError
from effects.extras import MissingExtra


def test_a_missing_extra_says_how_to_get_it() -> None:
    """It is cutover's own error, and an import error to those who look for one."""
    missing = MissingExtra(adapter="RedisLocks", extra="redis")
    assert isinstance(missing, CutoverError)
    assert isinstance(missing, ImportError)
    assert str(missing) == "'RedisLocks' needs the extra 'redis': pip install 'cutover[redis]'"
