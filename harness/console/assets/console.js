// Draws the charts, filters the list, and says whether the router is still there.
"use strict";

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const seconds = (_, value) => (value === null ? "—" : `${(value / 1000).toPrecision(3)} s`);
const clock = (_, times) => times.map((one) => new Date(one * 1000).toISOString().slice(11, 16));
const axis = { stroke: () => colour("--faint"), grid: { stroke: () => colour("--line") }, ticks: { stroke: () => colour("--line") } };
const series = ["legacy", "graph"].flatMap((stack) => [50, 95].map((rank) => ({
  label: `${stack} P${rank}`, stroke: () => colour(`--${stack}`), width: rank === 95 ? 2 : 1,
  dash: rank === 95 ? undefined : [4, 3], value: seconds, points: { size: 5 },
})));
const places = ["first", "end"].map((id) => document.getElementById(id));
const charts = [];
let drawn = null;

function draw(columns) {
  drawn = columns;
  places.forEach((place, at) => {
    const data = [columns[0], ...columns.slice(1 + 4 * at, 5 + 4 * at)];
    const empty = data.slice(1).every((column) => column.every((value) => value === null));
    place.closest("figure").classList.toggle("empty", empty);
    if (empty) return;
    if (charts[at]) { charts[at].setData(data); return; }
    const values = { ...axis, size: 56, values: (_, ticks) => ticks.map((one) => one / 1000) };
    const options = { width: place.clientWidth, height: 220, axes: [{ ...axis, values: clock }, values],
      series: [{ label: "UTC", value: (_, at) => (at === null ? "—" : clock(_, [at])[0]) }, ...series], scales: { x: { range: (_, from, to) => [Math.min(from, to - 600), to] }, y: { range: (_, __, most) => [0, most * 1.1 || 1] } } };
    charts[at] = new uPlot(options, data, place);
    new ResizeObserver(() => charts[at]?.setSize({ width: place.clientWidth, height: 220 })).observe(place);
  });
}

const filter = document.getElementById("filter");
function apply() {
  const wanted = filter.value.trim().toLowerCase();
  document.querySelectorAll("#newest tbody tr").forEach((row) => { row.hidden = !row.textContent.toLowerCase().includes(wanted); });
}
filter.addEventListener("input", apply);

function connected(there) {
  const said = document.getElementById("connection");
  said.textContent = there ? "live" : "connection lost, trying again; the figures are old";
  said.classList.toggle("lost", !there);
  document.body.classList.toggle("lost-connection", !there);
}
// A browser has six connections to a host: a hidden page gives its own back. The chart
// comes every 15 seconds: without it a connection is dead, even if it has not ended.
let source = null;
let watch = 0;
function heard() { clearTimeout(watch); watch = setTimeout(again, 20000); }
function again() { source.close(); source.onerror(); }  // which opens another one
document.addEventListener("visibilitychange", () => {
  if (document.hidden) { clearTimeout(watch); source?.close(); }
  else if (source?.readyState === EventSource.CLOSED) again();
});
document.body.addEventListener("htmx:sseOpen", (event) => { source = event.detail.source; connected(true); heard(); });
document.body.addEventListener("htmx:sseError", () => { clearTimeout(watch); connected(false); });
document.body.addEventListener("htmx:sseBeforeMessage", (event) => {
  heard();
  if (event.detail.type !== "chart") return;
  event.preventDefault();
  draw(JSON.parse(event.detail.data));
});
document.body.addEventListener("htmx:sseMessage", apply);
document.body.addEventListener("htmx:beforeRequest", (event) => { event.detail.target.textContent = "Loading …"; });
["htmx:sendError", "htmx:timeout"].forEach((name) => document.body.addEventListener(name, (event) => {
  event.detail.target.textContent = "No answer: nothing is known of what came of it.";
}));
document.querySelectorAll("dialog").forEach((dialog) => dialog.addEventListener("beforetoggle", () => {
  dialog.querySelector("form").reset();
  const own = document.querySelector("#now [data-share]").dataset;
  const percent = dialog.querySelector("[name=percent]");
  if (percent) percent.value = own[dialog.id.replace("change-", "")];
  dialog.querySelector("output")?.replaceChildren();
}));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  charts.splice(0).forEach((one) => one.destroy());
  if (drawn) draw(drawn);
});
