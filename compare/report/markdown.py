"""Markdown: the report as a comment on a pull request, short enough to be read."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from compare.noise import Judgement, Noise
from compare.noise.control import control_text
from compare.noise.study import METHOD, flags_text, p_value_text, reading_text, study_text
from compare.report.advice import noise_note
from compare.report.document import ClusterReport, Report, WaiverReport, finding_source
from compare.report.glimpse import cause_of, glimpse, on_one_line
from compare.report.latency import Latency
from compare.report.outcomes import OutcomeRow
from compare.verdict import Label
from contract.errors import visible
from evidence.pages.formats import duration, percent

CLUSTERS_SHOWN = 10
LINES_SHOWN = 8
OUTCOMES_SHOWN = 20
CODE_AT_MOST = 120
REASON_AT_MOST = 240
_MARKS: Mapping[Label, str] = {
    "equal": "✅",
    "waived": "☑️",
    "different": "❌",
    "incomplete": "⚠️",
    "no data": "⚪",
}
_OUTCOMES = (
    *("requests", "errors", "refused", "other stack served", "lost to that", "client left"),
    *("first text P50 · P95", "longest gap P95", "last event P95", "tool calls", "cost"),
    "feedback",
)
_MARKUP = re.compile(r"[\\`*_\[\]<>|~&]")


def markdown(report: Report) -> str:
    """Write the report as Markdown; bounded, however much differs."""
    verdict = report.verdict
    lines = [
        f"### {_MARKS[verdict.label]} cutover diff: **{verdict.sentence}**",
        "",
        *_few([f"- {plain(reason)}" for reason in verdict.reasons]),
        "",
        *([f"**Next:** {_prose(report.next_step.text)}", ""] if report.next_step else []),
        *_clusters(report),
        *_waivers(report),
        *_rules(report),
        *_noise(report),
        *_outcomes(report),
        *_latency(report),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _few(lines: Sequence[str]) -> list[str]:
    """Show the first lines and count the others."""
    if len(lines) <= LINES_SHOWN:
        return list(lines)
    return [*lines[: LINES_SHOWN - 1], f"- … and {len(lines) - LINES_SHOWN + 1} more"]


def _clusters(report: Report) -> list[str]:
    if not report.clusters:
        return []
    shown = report.clusters[:CLUSTERS_SHOWN]
    lines = [
        f"| | of its flow | layer | what | where | {' → '.join(report.sides)} | id |",
        "|---|--:|---|---|---|---|---|",
        *map(_row, shown),
        "",
    ]
    if len(report.clusters) > len(shown):
        lines += [f"… and {len(report.clusters) - len(shown)} more causes in the full report.", ""]
    return lines


def _row(cluster: ClusterReport) -> str:
    cells = [
        cluster.severity,
        f"{percent(cluster.share)} ({cluster.exchanges:,})",
        cluster.layer,
        f"{cluster.title} *(waived)*" if cluster.waived else cluster.title,
        code(f"{cluster.flow} {cluster.path}"),
        _example(cluster),
        code(cluster.id),
    ]
    return f"| {' | '.join(cells)} |"


def _noise(report: Report) -> list[str]:
    note = noise_note(report.counts.own_answers, report.counts.untaped, report.noise)
    table = noise_markdown(report.noise) if report.noise else []
    return [*([_prose(note), ""] if note else []), *table]


def _waivers(report: Report) -> list[str]:
    if not report.waivers:
        return []
    return ["Waivers:", "", *_few([_waiver(held) for held in report.waivers]), ""]


def _waiver(held: WaiverReport) -> str:
    owner, reason = plain(held.waiver.owner), plain(held.waiver.reason)
    exchanges = "1 exchange" if held.exchanges == 1 else f"{held.exchanges:,} exchanges"
    return (
        f"- {code(held.id)} **{held.standing}**, {exchanges}, until {held.waiver.until} "
        f"({owner}): {reason}"
    )


def _rules(report: Report) -> list[str]:
    if not report.rules:
        return []
    idle = [
        f"- {code(rule.key)} hit nothing: {code(rule.says)}"
        for rule in report.rules
        if not rule.hits
    ]
    hits = sum(1 for rule in report.rules if rule.hits)
    return [f"Rules: {hits} of {len(report.rules)} hit.", "", *_few(idle), ""]


def _example(cluster: ClusterReport) -> str:
    finding = cause_of(cluster)
    if finding is None:
        return ""
    sides = " → ".join("–" if it is None else code(it) for it in glimpse(finding))
    source = finding_source(finding)
    return f"{sides} from {code(source)}" if source else sides


def code(text: str) -> str:
    """Quote foreign text so that nothing in it is markup, a mention or a new line; cut if long."""
    cut = text if len(text) <= CODE_AT_MOST else f"{text[:CODE_AT_MOST]}…"
    return f"`{on_one_line(cut).replace('`', 'ˋ').replace('|', '¦') or ' '}`"


def plain(reason: str) -> str:
    """Write foreign text as prose: no markup, no mention, one line, cut if long."""
    flat = " ".join(visible(reason).split())
    cut = flat if len(flat) <= REASON_AT_MOST else f"{flat[:REASON_AT_MOST]}…"
    return _MARKUP.sub(r"\\\g<0>", cut).replace("@", "@\u2060")


def _prose(text: str) -> str:
    """Write a sentence whose commands and keys stand between backquotes."""
    parts = text.split("`")
    return "".join(
        code(part)
        if k % 2
        else f"{' ' * part.startswith(' ')}{plain(part)}{' ' * part.endswith(' ')}"
        for k, part in enumerate(parts)
        if part.strip()
    )


def _outcomes(report: Report) -> list[str]:
    if not report.outcomes:
        return []
    return [
        "<details><summary>Outcomes by assigned stack</summary>",
        "",
        f"| flow | by | {' | '.join(_OUTCOMES)} |",
        f"|---|---|{'--:|' * len(_OUTCOMES)}",
        *map(_outcome_row, report.outcomes[:OUTCOMES_SHOWN]),
        "",
        *_few(
            [
                f"- {code(f'{row.flow}, assigned to {row.stack}')} {plain(reason)}"
                for row in report.outcomes
                if row.by == "assigned"
                for reason in row.reasons
            ]
        ),
        "",
        "Shares have their 95 % interval (Wilson).",
        "",
        "</details>",
        "",
    ]


def _outcome_row(row: OutcomeRow) -> str:
    text = " · ".join(row.time_text("first_text", share) for share in (0.5, 0.95))
    cells = [
        plain(row.flow),
        f"{row.by} {plain(row.stack)}",
        f"{row.requests:,}",
        row.errors.text,
        row.refusals.text,
        row.fallbacks.text,
        duration(row.lost_us) if row.lost_us else "–",
        row.client_left.text,
        text,
        row.time_text("longest_gap", 0.95),
        row.time_text("last_frame", 0.95),
        row.tools_text,
        "–" if row.cost is None else f"{row.cost:.4g}",
        row.scores_text,
    ]
    return f"| {' | '.join(cells)} |"


def _latency(report: Report) -> list[str]:
    served = [latency for latency in report.latency if latency.role == "serving"]
    if not served:
        return []
    return [
        "<details><summary>Latency of the runs that served</summary>",
        "",
        "| flow | stack | metric | runs | P50 | P95 | P99 |",
        "|---|---|---|--:|--:|--:|--:|",
        *map(_latency_row, served),
        "",
        f"Percentiles by {report.percentile_method}.",
        "",
        "</details>",
    ]


def _latency_row(latency: Latency) -> str:
    values = [duration(percentile.value) for percentile in latency.percentiles]
    metric = {"first": "first event", "text": "first text", "end": "last event"}[latency.metric]
    cells = [plain(latency.flow), plain(latency.stack), metric, f"{latency.runs:,}", *values]
    return f"| {' | '.join(cells)} |"


def noise_markdown(noise: Noise) -> list[str]:
    """Write the noise as lines of Markdown."""
    found = noise.study
    lines = ["#### Noise", "", f"- {study_text(found)}", f"- {control_text(noise.control)}", ""]
    if found.judgements:
        lines += [
            "| flow | measure | leg.–leg. | leg.–graph | difference | p | reading | flagged |",
            "|---|---|--:|--:|--:|--:|---|---|",
            *map(_noise_row, found.judgements),
            "",
        ]
    left_out = [f"{count:,} left out: {reason}." for reason, count in found.left_out.items()]
    method = "\n\n".join((*METHOD, f"The margin is {found.margin:.3g}.", *left_out))
    summary = "<details><summary>How noise was measured</summary>"
    return [*lines, summary, "", method, "", "</details>", ""]


def _noise_row(judged: Judgement) -> str:
    cells = [
        judged.flow,
        judged.measure,
        f"{judged.again:.3f}",
        f"{judged.graph:.3f}",
        f"{judged.difference:+.3f} ({judged.low:+.3f} … {judged.high:+.3f})",
        p_value_text(judged),
        reading_text(judged),
        flags_text(judged),
    ]
    return f"| {' | '.join(cells)} |"
