"""Waivers by a report: bounded by what it shows, or carried over from an earlier version's ids."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec.structs import replace

from compare.clusters import Kinds
from compare.content import text_class
from compare.findings import (
    CallChanged,
    CodeChanged,
    Finding,
    FrameChanged,
    OutcomeChanged,
    ParameterChanged,
    PromptChanged,
    ToolAdded,
    ToolArguments,
    ToolDropped,
    WriteChanged,
    detail_of,
    general_path,
    kind_of,
    signature_of,
)
from compare.layers.groups import grouped
from compare.layers.model_calls import MESSAGE, SETTINGS, parameter_changes
from compare.layers.text import WENT_ON
from compare.report.document import ClusterReport, Report
from compare.waivers import Waiver, accepted_share, merged

BY_CONTENT = 3
"""The first version of reports whose ids are made of layer, place, kind and class of change."""

_ENDING = re.compile(r"(\w+)(?: \((?:\d+ )?([\w.-]*))?")
_CALL = re.compile(r"[^\[]*\[\d+\]")
_FRAME = re.compile(r"frames\[\d+\]\.[^.\[]*")


@dataclass(frozen=True, slots=True)
class Migration:
    """What becomes of waivers: the ids each is `carried` over to, or why it `lapsed`.

    `waivers` are those that are carried over, by their new ids.
    """

    carried: dict[str, tuple[str, ...]] = field(default_factory=dict)
    lapsed: dict[str, str] = field(default_factory=dict)
    waivers: dict[str, Waiver] = field(default_factory=dict)


def bounded(waiver: Waiver, finding: str, report: Report) -> Waiver:
    """Return the waiver bounded by what a report shows of its cause; as it is where it does not."""
    held = _causes(finding, waiver, report)
    if not held:
        return waiver
    classes = {name for cluster in held for name in cluster.classes}
    return replace(waiver, at_most=_accepted(held, report), classes=tuple(sorted(classes)))


def _causes(finding: str, waiver: Waiver, report: Report) -> list[ClusterReport]:
    return [one for one in report.clusters if one.id == finding and waiver.is_for(one.flow)]


def migrated(waivers: Mapping[str, Waiver], report: Report) -> Migration:
    """Find the ids of today for waivers, by the causes an older report shows."""
    found = Migration()
    for name, waiver in waivers.items():
        held = _causes(name, waiver, report)
        if not held:
            found.lapsed[name] = "the report has no cause of that id"
            continue
        classes: dict[str, Kinds] = defaultdict(Kinds)
        for cluster in held:
            for finding in _todays(cluster, report.v):
                classes[signature_of(finding)].count(detail_of(finding))
        if not classes:
            found.lapsed[name] = "the report shows no exchange of that cause"
            continue
        share = _accepted(held, report)
        for new, seen in classes.items():
            made = replace(waiver, at_most=share, classes=tuple(sorted(seen)))
            known = found.waivers.get(new)
            found.waivers[new] = made if known is None else merged(known, made)
        found.carried[name] = tuple(classes)
    return found


def _accepted(causes: Iterable[ClusterReport], report: Report) -> float:
    """Return the share causes may rise to; 1 where a report does not count the pairs of a flow."""
    flows = {one.flow for one in report.clusters} | {one.flow for one in report.latency}
    alone = dict.fromkeys(flows, report.counts.pairs) if len(flows) == 1 else {}
    pairs = alone | report.counts.by_flow
    return max(accepted_share(cause.exchanges, pairs.get(cause.flow, 0)) for cause in causes)


def _todays(cluster: ClusterReport, version: int) -> list[Finding]:
    """List a cluster's own findings in its exemplars, as they are placed today."""
    found: list[Finding] = []
    for exemplar in cluster.exemplars:
        causes = [finding for finding in exemplar.findings if finding.after is None]
        if version >= BY_CONTENT:
            same = [finding for finding in causes if signature_of(finding) == cluster.id]
            found += [now for finding in same for now in _by_field(finding)]
            continue
        ids = [earlier_id(finding) for finding in causes]
        found += [now for was, now in zip(ids, _placed(causes), strict=True) if was == cluster.id]
    return found


def _by_field(finding: Finding) -> list[Finding]:
    """Return the fields that differ of a model call; earlier findings name a whole place."""
    place, _, below = finding.path.partition("].")
    match finding:
        case PromptChanged(change="") if finding.legacy is None or finding.graph is None:
            path, at, _ = finding.path.rpartition("]")
            return [replace(finding, path=f"{path}{at}", change=_class_of(finding), detail=MESSAGE)]
        case PromptChanged(change=""):
            role = finding.path.rpartition(".")[2]
            return [replace(finding, change=_class_of(finding), detail=role)]
        case ParameterChanged() if below == "more":
            sides = [_settings_of(side) for side in (finding.legacy, finding.graph)]
            return [
                replace(
                    finding,
                    path=f"{place}].{change.path}",
                    legacy=change.legacy,
                    graph=change.graph,
                )
                for change in parameter_changes(*sides)
            ]
        case _:
            return [finding]


def _class_of(finding: PromptChanged) -> str:
    return text_class(finding.legacy, finding.graph)


def _settings_of(shown: str | None) -> dict[str, Any]:
    """Read the settings a finding shows; what is cut off, or not set, is none."""
    try:
        value = msgspec.json.decode(shown or "")
    except msgspec.DecodeError:
        value = {}
    return {"more": value}


def earlier_id(finding: Finding) -> str:
    """Return the id that versions 1 and 2 gave: of layer, path without indices, and kind."""
    parts = finding.layer, general_path(finding.path), kind_of(finding)
    return blake2b("\x1f".join(parts).encode(), digest_size=6).hexdigest()


def _placed(causes: Sequence[Finding]) -> list[Finding]:
    """Place the causes of one exchange as they are today; those of one group become its cause."""
    groups: dict[tuple[str, str], list[int]] = defaultdict(list)
    placed = [_one_placed(cause) for cause in causes]
    for k, cause in enumerate(causes):
        shape = _FRAME if isinstance(cause, FrameChanged) else _CALL
        found = shape.match(cause.path)
        if found and isinstance(cause, FrameChanged | WriteChanged | CallChanged):
            groups[kind_of(cause), found[0]].append(k)
    for (_, place), indices in groups.items():
        cause, *_ = grouped([causes[k] for k in indices], place)
        for k in indices:
            placed[k] = cause
    return placed


def _one_placed(finding: Finding) -> Finding:
    call = _CALL.match(finding.path)
    place = call[0] if call else finding.path
    below = finding.path.removeprefix(f"{place}.")
    match finding:
        case OutcomeChanged() | CodeChanged():
            legacy, graph = _ended(finding.legacy), _ended(finding.graph)
            went_on = graph in {"completed", "failed.tape_miss"} and legacy != "completed"
            return replace(finding, path=f"{legacy}→{WENT_ON}" if went_on else f"→{graph}")
        case ToolArguments() | ToolDropped() | ToolAdded():
            return replace(finding, path=place, detail=general_path(below))
        case ParameterChanged() if finding.graph is None:
            return replace(finding, path=f"{place}.{SETTINGS}", detail=below)
        case PromptChanged():
            head, _, roles = finding.path.rpartition(".")
            [now] = _by_field(replace(finding, path=f"{head}.{roles.split('+')[0]}"))
            return now
        case _:
            return finding


def _ended(shown: str | None) -> str:
    ending = _ENDING.match(shown or "")
    return ".".join(filter(None, ending.groups())) if ending else ""


def migration_lines(found: Migration) -> Iterable[str]:
    """Describe what became of each waiver."""
    for name, now in found.carried.items():
        yield f"{name} is carried over to {', '.join(now)}"
    for name, why in found.lapsed.items():
        yield f"{name} lapses: {why}"
