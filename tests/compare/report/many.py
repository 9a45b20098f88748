"""Reports with as many causes as wanted, and with whatever text can do harm."""

from __future__ import annotations

from datetime import date

import msgspec

from compare.clusters import Exemplar
from compare.findings import signature_of
from compare.report import Report, report_of
from compare.report.document import ClusterReport
from compare.rules import rules_of
from compare.waivers import Waiver, Waivers
from contract.records import RunRecord
from cutover.selftest.exchanges import Script, exchange
from cutover.selftest.run_faults import FAULTS, SOUND
from tests.compare.pairs import tallied

HOSTILE = (
    "</style></script><script>alert(1)</script><img src=x onerror=alert(1)> \"'`|` \u202etxet\x00"
)
WORD = "w" * 100_000
PROMPT = "你是一个友好的助手。请根据以下对话历史回答用户的问题，不要重复，不要编造。\n" * 700
RULES = rules_of('[[replace]]\npattern = "[0-9]+"\nwith = "#"\nlayer = "text"', "diff.toml")


def hostile() -> list[tuple[RunRecord, RunRecord]]:
    """Give exchanges with markup, controls, a word without end and very long prompts."""
    changed = f"{PROMPT[:9_000]}！{PROMPT[9_000:20_000]}改了{PROMPT[20_000:]}"
    return [
        exchange(Script(pieces=("a", "b")), Script(system=HOSTILE, pieces=(HOSTILE, "b"))),
        exchange(Script(), Script(system=WORD, user=WORD), number=1),
        exchange(Script(system=PROMPT), Script(system=changed), number=2),
        exchange(Script(), Script(pieces=(PROMPT[:4_000], WORD)), number=3),
    ]


def report_on(*exchanges: tuple[RunRecord, ...], waived: int = 0) -> Report:
    """Compare exchanges and write them up, the first causes waived."""
    tally = tallied(*exchanges)
    ids = [cluster.id for cluster in tally.clusters.ordered()][:waived]
    held = dict.fromkeys(ids, Waiver(HOSTILE, HOSTILE, date(2027, 1, 1)))
    waivers = Waivers(date(2026, 11, 22), held)
    return report_of(tally, HOSTILE, "ignore", RULES, waivers)


def report_with(causes: int) -> Report:
    """Give a report of so many causes, drawn from every seeded fault and all hostile text."""
    faulty = [exchange(SOUND, f.script, number=10 + k) for k, f in enumerate(FAULTS)]
    if not causes:
        return report_on(exchange())
    report = report_on(*hostile(), *faulty, waived=3)
    made = tuple(
        _variant(report.clusters[k % len(report.clusters)], k, causes) for k in range(causes)
    )
    return msgspec.structs.replace(report, clusters=made)


def _variant(cluster: ClusterReport, k: int, causes: int) -> ClusterReport:
    exemplars = tuple(_renamed(exemplar, k) for exemplar in cluster.exemplars)
    own = next(f for f in exemplars[0].findings if f.after is None)
    return msgspec.structs.replace(
        cluster, id=signature_of(own), share=(causes - k) / causes, exemplars=exemplars
    )


def _renamed(exemplar: Exemplar, k: int) -> Exemplar:
    findings = tuple(
        msgspec.structs.replace(finding, path=f"{finding.path}.k{k}")
        for finding in exemplar.findings
    )
    return msgspec.structs.replace(exemplar, findings=findings)
