"""`cutover diff --sample`: exchanges worth keeping as tests, written as captures of their own."""

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

from compare.pairs import Rows, served_runs
from cutover.errors import Unusable
from cutover.records import RunRecord, decode
from harness import root
from harness.commands.diff import Comparison
from router.captures import Redactor, Store


def chosen_pairs(rows: Rows, count: int, *, by_cause: bool) -> list[str]:
    """Return exchanges that were compared, the same for the same rows.

    `by_cause`: one of each cause, the most frequent first; then equal ones, of each flow and
    outcome in turn. Ids are random, so the first by id are as good as drawn.
    """
    pairs = [one for one in rows.pairs if one.state != "not_compared" and not one.baseline]
    pairs.sort(key=lambda one: one.exchange)
    causes = {one.exchange: {each.cause(one.flow) for each in one.causes} for one in pairs}
    found, covered, places = dict[str, None](), set[str](), Counter[object]()
    for cause, _ in Counter(sorted(c for one in causes.values() for c in one)).most_common():
        if by_cause and cause not in covered:
            first = next(one for one, those in causes.items() if cause in those)
            found[first], covered = None, covered | causes[first]
    ends, turns = {one.exchange: (one.end, one.code) for one in rows.exchanges}, []
    for pair in pairs:
        if pair.state == "equal" or not by_cause:
            places[kind := (pair.flow, ends.get(pair.exchange))] += 1
            turns.append((places[kind], pair.exchange))
    return [*(found | dict.fromkeys(one for _, one in sorted(turns)))][:count]


def write_sample(job: Comparison, chosen: list[str], out: Path) -> str:
    """Write the lines of exchanges, byte for byte, a file each; return what follows.

    Raises `Unusable` for a folder that holds anything, and for lines that were not redacted.
    """
    if not chosen or (out.exists() and any(out.iterdir())):
        why = "it is not empty: name another folder" if chosen else "there is no pair to be kept"
        raise Unusable(where=out, reason=why)
    lines: dict[str, dict[tuple[str, str], bytes]] = {one: {} for one in chosen}
    for file in sorted(job.files, key=lambda one: one.rpartition("/")[2], reverse=True):
        for head, line in job.lines(file, Counter()):
            if head.exchange in lines:
                lines[head.exchange].setdefault((head.role, head.stack), line)
    redactor = root.redactor(job.settings) or Redactor(b"it looks, and replaces nothing")
    found = dict[str, list[bytes]]()
    for id_, those in lines.items():
        runs = [decode(one, RunRecord) for one in those.values()]
        first = served_runs(runs)[0]
        # What stands for a number looks like one: lines that were redacted are not searched.
        if any(not one.redacted and redactor.line(one, first.tape).redacted for one in runs):
            why = "it holds personal data: it was stored without redaction, or with other patterns"
            raise Unusable(where=f"exchange {id_}", reason=why)
        day = datetime.fromtimestamp(first.at / 1e6, UTC).date()
        content = [those[run] for run in sorted(those)]
        found[f"flow={first.flow}/date={day}/{id_}.jsonl.zst"] = content
    for name, content in found.items():
        Store(str(out)).replace(name, content)
    return f"{len(found)} exchanges are in {out}\nnext: pytest --cutover {out}"
