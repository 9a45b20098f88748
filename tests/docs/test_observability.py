"""What docs/observability.md lists is what there is."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from opentelemetry.semconv.attributes import error_attributes, http_attributes

from contract.flows.chat import ModelOverrides
from contract.model import Chunk, Usage
from router.telemetry.access_log import AccessLog
from router.telemetry.instruments import INSTRUMENTS
from tests.conftest import ROOT
from tests.support.faulty_stacks import after, crash
from tests.support.flow_runs import Case
from tests.support.log_records import listening
from tests.support.programs import promtool
from tests.support.recorded_spans import Traced, said
from tests.support.router_world import House, Rules
from tests.support.tool_replies import CASE, FLOWS, both

PAGE = (ROOT / "docs" / "observability.md").read_text("utf-8")
OTHER_THAN_SUMS = r"except\s(.*?)A worker that has ended"


def rows(head: str) -> Iterator[list[str]]:
    """Return the cells of a table, row by row; `head` is its first column's title."""
    table = PAGE.split(f"| {head} |")[1].split("\n\n")[0]
    for line in table.splitlines()[2:]:
        yield [cell.strip().strip("`") for cell in line.strip("|").split("|")]


def test_every_metric_is_listed_as_it_is() -> None:
    """Name, kind, labels and meaning."""
    assert list(rows("metric")) == [
        [one.name, one.kind, ", ".join(one.labels), one.description] for one in INSTRUMENTS
    ]


def test_what_is_not_summed_over_workers_is_listed() -> None:
    """The page says of each gauge that it is the highest or the lowest."""
    found = re.search(OTHER_THAN_SUMS, PAGE, re.DOTALL)
    assert found is not None
    highest, lowest = found[1].split("(the highest)")
    for how, told in (("livemax", highest), ("livemin", lowest)):
        named = set(re.findall(r"`(cutover_\w+)`", told))
        assert named == {one.name for one in INSTRUMENTS if one.across == how}


def test_names_follow_the_conventions() -> None:
    """Counters end in `_total`, other units are base units, nothing is said twice."""
    for one in INSTRUMENTS:
        assert (one.kind == "counter") == one.name.endswith("_total")
        assert bool(one.buckets) == (one.kind == "histogram")
        assert re.fullmatch(r"cutover_[a-z_]+", one.name)
        assert one.kind != "histogram" or one.name.endswith(("_seconds", "_bytes"))
    assert len({one.name for one in INSTRUMENTS}) == len(INSTRUMENTS)


def test_the_dashboard_asks_for_what_there_is() -> None:
    """Names, and the labels it selects, groups and names lines by."""
    known = {one.name: one for one in INSTRUMENTS}
    board = json.loads((ROOT / "deploy" / "grafana.json").read_text("utf-8"))
    asked = [one for panel in board["panels"] for one in panel["targets"]]
    assert len(asked) > 15
    for one in asked:
        names = set(re.findall(r"cutover_[a-z_]+", one["expr"]))
        assert names
        for name in names:
            instrument = known[name.removesuffix("_bucket")]
            assert name.endswith("_bucket") == (instrument.kind == "histogram")
            labels = {*instrument.labels, "le"}
            by = re.findall(r"by \(([^)]*)\)", one["expr"])
            assert {label.strip() for group in by for label in group.split(",")} <= labels
            assert set(re.findall(r"(\w+)(?:=~|!~|=)\"", one["expr"])) <= labels
            assert set(re.findall(r"{{(\w+)}}", one["legendFormat"])) <= labels


def test_prometheus_reads_each_query_of_the_dashboard(tmp_path: Path) -> None:
    """With the variables as Grafana fills them in; a query that is none is refused."""
    board = json.loads((ROOT / "deploy" / "grafana.json").read_text("utf-8"))
    asked = [one["expr"] for panel in board["panels"] for one in panel["targets"]]
    filled = [one.replace("$__rate_interval", "5m").replace("$flow", "chat|ops") for one in asked]
    assert "$" not in "".join(filled)
    for queries, status in ((filled, 0), ([*filled, "rate(cutover_faults[5m]"], 1)):
        rules = [{"record": f"query:{place}", "expr": one} for place, one in enumerate(queries)]
        file = {"groups": [{"name": "dashboard", "rules": rules}]}
        (tmp_path / "queries.yml").write_text(json.dumps(file), "utf-8")
        ran = promtool("check", "rules", "--lint=none", "queries.yml", folder=tmp_path)
        assert ran.returncode == status, ran.stdout + ran.stderr


def test_the_dashboard_shows_exemplars_of_the_times() -> None:
    """Beside the 99th percentile, where a slow exchange is looked for."""
    board = json.loads((ROOT / "deploy" / "grafana.json").read_text("utf-8"))
    asked = [one for panel in board["panels"] for one in panel["targets"]]
    traced = {"first_frame", "first_text", "last_frame"}
    found = [one["expr"] for one in asked if one.get("exemplar")]
    assert {re.findall(r"time_to_(\w+)_seconds", expr)[0] for expr in found} == traced
    assert all("histogram_quantile(0.99" in expr for expr in found)


def listed() -> set[str]:
    """Return the attributes the page lists."""
    return {name for name, _, _ in rows("attribute")}


@pytest.mark.virtual
async def test_every_attribute_is_listed_and_every_listed_one_is_said() -> None:
    """In two exchanges: one that went well, shadowed, and one that did not."""
    kept = Traced()
    answers = (CASE.answers[0], (Chunk(text="Hi", finish="stop", model="m", usage=Usage(1, 2, 3)),))
    body = msgspec.structs.replace(CASE.body, model_config=ModelOverrides(max_tokens=9))
    case = Case(body, CASE.options, answers, tools=CASE.tools)
    rules = Rules(assigned="graph", shadow=100, observers=[kept.observer])
    async with House(case, rules, price=lambda *_: 0.5) as made:
        await made.ask()
    async with both(
        "graph", after(FLOWS["graph"], 3, crash), FLOWS["legacy"], observers=[kept.observer]
    ) as made:
        await made.ask()
    found = {name for span in kept.spans for name in said(span)}
    found |= {name for span in kept.spans for one in span.events for name in one.attributes or ()}
    found |= {name for span in kept.spans for one in span.links for name in one.attributes or ()}
    nodes = {name for name in found if name.startswith("cutover.node.")}
    assert nodes
    assert found - nodes | {"cutover.node.{node}"} == listed()


def test_attributes_are_those_of_the_conventions() -> None:
    """Of the version that is installed, where they are not our own."""
    known = {
        value
        for module in (gen_ai_attributes, error_attributes, http_attributes)
        for value in vars(module).values()
        if isinstance(value, str)
    }
    assert {name for name in listed() if not name.startswith("cutover.")} <= known


@pytest.mark.virtual
async def test_every_field_of_an_exchanges_line_is_listed() -> None:
    """In the order they are written in."""
    with listening() as lines:
        async with House(CASE, Rules(observers=[AccessLog()])) as made:
            await made.ask()
    assert list(lines.fields()) == [field for field, _ in rows("field")]
