"""One flow's switches and shares, and the stage people see."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated, Any, Literal

import msgspec

from contract.flow import SESSION, FlowSpec
from contract.flows.declared import DeclaredFlow
from router.config.toml_table import (
    ConfigRefused,
    Table,
    convert_table,
    display_value,
    subtable,
    unknown_name,
)

Stage = Literal["off", "shadow", "ramp", "full", "retired"]
Share = Literal["none", "some", "all"]
Sticky = Literal["auto", "none", "conversation"]

FlagKind = Literal["switch", "percent", "keys"]

FLAG_KINDS: Mapping[str, FlagKind] = {
    "enable_langgraph": "switch",
    "langgraph_percent": "percent",
    "shadow_percent": "percent",
    "langgraph_fallback": "switch",
    "fallback_to_graph": "switch",
    "force_graph": "keys",
    "force_legacy": "keys",
}
"""The flags of a flow; `chat.langgraph_percent` is what a source knows them by."""

STEP = Decimal("0.001")
_FULL = 100_000

_STAGES: tuple[tuple[Stage, bool | None, Share | None, bool | None, bool | None], ...] = (
    # stage, enabled, share of keys on graph, mirrored, legacy takes over (None: either way)
    ("off", False, None, None, None),
    ("off", True, "none", False, None),
    ("shadow", True, "none", True, None),
    ("ramp", True, "some", None, None),
    ("retired", True, "all", False, False),
    ("full", True, "all", None, None),
)


class FlowTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `[flows.<name>]` says of a flow's rollout; percentages in steps of 0.001.

    `enable_langgraph` off means that the graph stack is not run at all, not even in the shadow.
    `when_open` is what happens to those whom an open breaker leaves without any stack. `sticky` is
    "auto" only until it is read: a conversation is frozen unless each of its messages is routed
    for itself. `options` is the flow's own options struct.
    `max_streams` may be open at once; 0 is no limit of its own.
    """

    enable_langgraph: bool = False
    langgraph_percent: Decimal = Decimal("0.000")
    langgraph_fallback: bool = True
    fallback_to_graph: bool = False
    shadow_percent: Decimal = Decimal("0.000")
    max_streams: Annotated[int, msgspec.Meta(ge=0)] = 0
    when_open: Literal["try", "refuse"] = "try"
    route_key: str = ""
    sticky: Sticky = "auto"
    force_graph: frozenset[str] = frozenset()
    force_legacy: frozenset[str] = frozenset()
    options: Any = None


class FlowSettings(FlowTable, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A flow as configured; `declared` is the flow itself where it stands there alone."""

    declared: DeclaredFlow | None = None

    @property
    def graph_thousandths(self) -> int:
        """Share of route keys assigned to graph, in thousandths of a percent: 0 to 100 000."""
        return int(self.langgraph_percent * 1_000)

    @property
    def shadow_thousandths(self) -> int:
        """Share of requests mirrored, in thousandths of a percent: 0 to 100 000."""
        return int(self.shadow_percent * 1_000)

    @property
    def stage(self) -> Stage:
        """How far the migration of this flow is, as shown to people."""
        graph = self.graph_thousandths
        share: Share = "none" if graph == 0 else "all" if graph == _FULL else "some"
        facts = (self.enable_langgraph, share, self.shadow_thousandths > 0, self.langgraph_fallback)
        return next(
            stage
            for stage, *wanted in _STAGES
            if all(want is None or want == fact for want, fact in zip(wanted, facts, strict=True))
        )


def flow_settings(
    table: Table, spec: FlowSpec, where: str, declared: DeclaredFlow | None = None
) -> FlowSettings:
    """Read one flow's table, but for what declares it; raises `ConfigRefused`."""
    prefix = f"flows.{spec.name}."
    own = {key: value for key, value in table.items() if key != "options"}
    found = convert_table(own, FlowTable, where, prefix)
    refuse_double_pins(found, where, prefix)
    options = subtable(table, "options", where, prefix)
    route_key = _route_key(found.route_key, spec.route_keys, where, f"{prefix}route_key")
    whole = FlowSettings(**msgspec.structs.asdict(found), declared=declared)
    return msgspec.structs.replace(
        whole,
        langgraph_percent=checked_percent(
            found.langgraph_percent, where, f"{prefix}langgraph_percent"
        ),
        shadow_percent=checked_percent(found.shadow_percent, where, f"{prefix}shadow_percent"),
        route_key=route_key,
        sticky=_sticky(found.sticky, route_key, spec, where, f"{prefix}sticky"),
        options=convert_table(options, spec.options, where, f"{prefix}options."),
    )


def checked_percent(value: Decimal, where: str, key: str) -> Decimal:
    """Give a percentage with three places; raises `ConfigRefused` on finer ones and beyond 100."""
    if not 0 <= value <= 100:  # noqa: PLR2004 (per cent)
        raise ConfigRefused(where, key, "allowed: 0 to 100", display_value(key, value))
    rounded = value.quantize(STEP)
    if rounded != value:
        raise ConfigRefused(where, key, f"allowed: steps of {STEP}", display_value(key, value))
    return rounded


def _route_key(wanted: str, known: Mapping[str, str], where: str, key: str) -> str:
    if not wanted:
        return next(iter(known), "")
    if wanted not in known:
        raise unknown_name(where, key, known, "route key", wanted)
    return wanted


def _sticky(wanted: Sticky, route_key: str, spec: FlowSpec, where: str, key: str) -> Sticky:
    known = SESSION in spec.route_keys
    if wanted == "conversation" and not known:
        why = f"flow {spec.name!r} has no route key {SESSION!r} that would name conversations"
        raise ConfigRefused(where, key, why, repr(wanted))
    if wanted != "auto":
        return wanted
    by_message = route_key == next(iter(spec.route_keys), "") != SESSION
    return "conversation" if known and not by_message else "none"


def refuse_double_pins(found: FlowTable, where: str, prefix: str) -> None:
    """Raise `ConfigRefused` where a key is in both lists."""
    both = sorted(found.force_graph & found.force_legacy)
    if both:
        why = "also in force_legacy: a key can be pinned to one stack only"
        raise ConfigRefused(where, f"{prefix}force_graph", why, repr(both[0]))
