"""The runs of one exchange, found among the captures that were written soon after it ended."""

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from compare.differences import Pair, differences
from compare.pairs import pair_row, paired, served_runs
from compare.report.streams import Exemplar, alone, exemplar
from cutover.flow import Flow
from cutover.records import RecordDamaged, RunRecord, TapeRecord, decode
from router.captures import Store
from router.captures.reader import file_lines

SOON_US: Final = 60_000_000
"""How long after an exchange its shadow may have been stored."""
SLACK_US: Final = 2_000_000


def find(url: str, flow: Flow, exchange: str, ended: int) -> Exemplar | None:
    """Return an exchange that ended at a time, in µs since 1970, as reports show pairs; blocks.

    Both runs, where another one is stored that it can be compared with, or else the one that
    served; None where that is not stored.
    """
    store, runs = Store(url), list[RunRecord]()
    for name in store.names(flow.name):
        written = name.rpartition("/")[2].partition("-")[0]  # in ns; "" of a file that was renamed
        if not (written.isdigit() and 0 <= int(written) // 1000 - ended + SLACK_US <= SOON_US):
            continue
        runs += _runs(store, name, exchange)
        if isinstance(pair := paired(runs), Pair):
            return exemplar(pair, pair_row(pair, runs[0], flow, differences), flow)
    served = served_runs(runs)
    return alone(served[-1], served[0].tape or TapeRecord(), flow) if served else None


def _runs(store: Store, name: str, exchange: str) -> Iterator[RunRecord]:
    for line in file_lines(store, name, Counter()):
        if exchange.encode() in line:
            with suppress(RecordDamaged):
                record = decode(line, RunRecord)
                if record.exchange == exchange:
                    yield record
