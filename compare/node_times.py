"""Node times: how long the nodes of captured runs were open, stack beside stack.

Of a line only what is about nodes is decoded: requests, frames and tapes are passed over.
"""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Final, NamedTuple

import msgspec

from compare.clusters import NAME_AT_MOST, OTHERS
from compare.findings import shortened
from compare.input.captures import LineHead, damage_of, is_not_to_come, new_series
from compare.input.damage import ILLEGIBLE, CapturesUnreadable, Damage, DamageTally
from compare.input.segments import ALL_DAYS, CapturedLine, Days, find_segments, read_lines
from contract.records import VERSION, Role
from evidence.intervals import percentile

ROLES: Final[tuple[Role, ...]] = ("serving", "fallback", "shadow", "replay")
NAMES_AT_MOST: Final = 1_000
"""Groups of runs, and nodes in them, that are told apart: captures may hold any names."""
P95: Final = 0.95
_LONGEST: Final = (1 << 63) - 1

_Microseconds = Annotated[int, msgspec.Meta(ge=0, le=_LONGEST)]


class _TimedRun(LineHead, frozen=True, kw_only=True):
    """What a line says of the times of a run."""

    v: Annotated[int, msgspec.Meta(ge=VERSION, le=VERSION)]
    exchange: str
    flow: str
    role: Role
    stack: str
    nodes: dict[str, _Microseconds] = msgspec.field(default_factory=dict)
    run_us: _Microseconds = 0


_decode = msgspec.json.Decoder(_TimedRun).decode


class Times(msgspec.Struct, frozen=True):
    """The times of a node, or of whole runs, in milliseconds; percentiles by nearest rank.

    `runs` are those in which it was open. `share` is that of the time of all runs that recorded
    their whole time; None where none did.
    """

    runs: int
    median_ms: float
    p95_ms: float
    share: float | None


class NodeRow(msgspec.Struct, frozen=True):
    """A node, and its times by stack; a stack that never opened it is missing."""

    node: str
    stacks: dict[str, Times]


class NodeTable(msgspec.Struct, frozen=True):
    """The runs of one flow in one role, by stack: their nodes in order of opening.

    `total` is the whole time of a run, until its last node closed, `outside` the share of it that
    was spent in no node; the less, the more nodes were open at once, but not below 0. `untimed`
    counts runs that opened no node, those of a stack behind an address among them.
    """

    flow: str
    role: Role
    stacks: tuple[str, ...]
    nodes: tuple[NodeRow, ...]
    total: dict[str, Times]
    outside: dict[str, float]
    untimed: dict[str, int]


class NodeReport(msgspec.Struct, frozen=True):
    """What was read: a table for each flow and role; `damage` names the first of the damage."""

    captures: str
    runs: int
    tables: tuple[NodeTable, ...]
    damaged: dict[str, int]
    damage: tuple[Damage, ...]

    @property
    def unread(self) -> bool:
        """Whether something could not be read; a duplicate could."""
        return bool(self.damaged.keys() - {"duplicate"})


class Group(NamedTuple):
    """Runs that are reported together."""

    flow: str
    role: Role
    stack: str


@dataclass(slots=True)
class _Runs:
    """The times of a group's runs, in microseconds, 8 bytes each.

    `whole` are those of the runs that recorded theirs, `shared` what these spent in each node.
    """

    nodes: defaultdict[str, array[int]] = field(default_factory=lambda: defaultdict(new_series))
    whole: array[int] = field(default_factory=new_series)
    shared: Counter[str] = field(default_factory=Counter)
    untimed: int = 0

    def times(self, node: str) -> Times:
        """Summarise the times of a node."""
        return _summary(self.nodes[node], self.share(node) if self.whole else None)

    def share(self, *nodes: str) -> float:
        """Return the share of the whole time that was spent in some nodes."""
        return sum(self.shared[node] for node in nodes) / sum(self.whole)


class NodeTally(DamageTally):
    """Counts runs once each, however often they are read.

    Holds 8 bytes for each time, and some hundred for each run; all else is bounded.
    """

    def __init__(self) -> None:
        super().__init__()
        self.runs = 0
        self._groups: dict[Group, _Runs] = {}
        self._order: defaultdict[str, list[str]] = defaultdict(list)
        self._names = 0
        self._counted: set[int] = set()

    def read(self, line: CapturedLine, place: str, flows: Collection[str] = ()) -> None:
        """Take in a line; of other than these flows, if there are any, nothing is counted."""
        try:
            run = _decode(line.data)
        except ILLEGIBLE as trouble:
            self.damaged(damage_of(line, place, f"{line.place}: {trouble}"))
            return
        if is_not_to_come(run) or (flows and run.flow not in flows):
            return
        identity = hash((run.exchange, run.role, run.stack))
        if identity in self._counted:
            name = shortened(run.exchange, NAME_AT_MOST)
            detail = f"{run.role} run of {name!r} was read before"
            self.damaged(Damage("duplicate", place, detail))
            return
        self._counted.add(identity)
        self.runs += 1
        flow, stack = (shortened(name, NAME_AT_MOST) for name in (run.flow, run.stack))
        self.add(Group(flow, run.role, stack), run.nodes, run.run_us)

    def add(self, group: Group, nodes: Mapping[str, int], whole: int) -> None:
        """Count the times of a run, in microseconds; its `whole` time is 0 where unknown."""
        if group not in self._groups and not self._tell_apart():
            group = Group(OTHERS, group.role, OTHERS)
        runs = self._groups.setdefault(group, _Runs())
        if not nodes:
            runs.untimed += 1
            return
        if whole:
            runs.whole.append(whole)
        opened: Counter[str] = Counter()
        for node, spent in nodes.items():
            name = shortened(node, NAME_AT_MOST)
            opened[name if name in runs.nodes or self._tell_apart() else OTHERS] += spent
        for name, spent in opened.items():
            runs.nodes[name].append(min(spent, _LONGEST))
        if whole:
            runs.shared.update(opened)
        insert_opened(self._order[group.flow], opened)

    def _tell_apart(self) -> bool:
        """Count one more name, of a group or of a node; return whether it is told apart."""
        self._names += 1
        return self._names <= NAMES_AT_MOST

    def report(self, captures: str) -> NodeReport:
        """Summarise; legacy stands first."""
        tables = {(group.flow, group.role) for group in self._groups}
        ordered = sorted(tables, key=lambda table: (table[0], ROLES.index(table[1])))
        return NodeReport(
            captures,
            self.runs,
            tuple(self._table(flow, role) for flow, role in ordered),
            dict(sorted(self.damage.items())),
            tuple(self.named),
        )

    def _table(self, flow: str, role: Role) -> NodeTable:
        found = {
            group.stack: runs
            for group, runs in self._groups.items()
            if (group.flow, group.role) == (flow, role)
        }
        stacks = tuple(sorted(found, key=lambda stack: (stack != "legacy", stack)))
        times = {
            node: {one: found[one].times(node) for one in stacks if node in found[one].nodes}
            for node in self._order[flow]
        }
        whole = [stack for stack in stacks if found[stack].whole]
        return NodeTable(
            flow,
            role,
            stacks,
            tuple(NodeRow(node, by_stack) for node, by_stack in times.items() if by_stack),
            {one: _summary(found[one].whole, 1.0) for one in whole},
            {one: max(0.0, 1 - found[one].share(*found[one].shared)) for one in whole},
            {one: found[one].untimed for one in stacks if found[one].untimed},
        )


def _summary(times: Iterable[int], share: float | None) -> Times:
    """Summarise times in microseconds; there must be at least one."""
    ordered = sorted(times)
    median, p95 = (percentile(ordered, p) / 1_000 for p in (0.5, P95))
    return Times(len(ordered), median, p95, share)


def insert_opened(order: list[str], opened: Iterable[str]) -> None:
    """Put the nodes of a run where they belong: each new one behind the one before it."""
    place = 0
    for node in opened:
        if node in order:
            place = order.index(node) + 1
        else:
            order.insert(place, node)
            place += 1


def read_node_times(
    place: str, flows: Collection[str] = (), on_bytes: Callable[[int], None] | None = None
) -> NodeReport:
    """Read the times of all captures at a path or URL, line by line; of all flows, or of some.

    A file that cannot be read is damage. Raises `CapturesUnreadable`.
    """
    tally = NodeTally()
    days = Days(*flows) if len(flows) == 1 else ALL_DAYS
    for segment in find_segments(place, days=days):
        try:
            for line in read_lines(segment, on_bytes):
                if isinstance(line, Damage):
                    tally.damaged(line)
                else:
                    tally.read(line, segment.url, flows)
        except CapturesUnreadable as trouble:
            tally.damaged(Damage("unreadable", segment.url, trouble.why))
    return tally.report(place)
