"use strict";
const data = document.getElementById("sample").dataset;
const place = "cutover-judge-" + data.sample;
const pairs = [...document.querySelectorAll("section.pair")];
const choices = new Map();
try {
  for (const [exchange, choice] of JSON.parse(localStorage.getItem(place) || "[]")) {
    choices.set(exchange, choice);
  }
} catch { /* A browser that stores nothing for files: the export is all there is. */ }

function show() {
  for (const pair of pairs) {
    const chosen = choices.get(pair.dataset.exchange);
    pair.classList.toggle("done", chosen !== undefined);
    for (const button of pair.querySelectorAll("button")) {
      button.setAttribute("aria-pressed", String(button.value === chosen));
    }
  }
  const done = pairs.filter((pair) => choices.has(pair.dataset.exchange)).length;
  document.getElementById("done").textContent = String(done);
  document.getElementById("filled").setAttribute("width", (100 * done) / pairs.length + "%");
  document.getElementById("export").disabled = done === 0;
}

function choose(pair, choice) {
  choices.set(pair.dataset.exchange, choice);
  try {
    localStorage.setItem(place, JSON.stringify([...choices]));
  } catch { /* As above. */ }
  show();
  const next = pairs.find((one) => !choices.has(one.dataset.exchange));
  if (next) {
    next.scrollIntoView({ block: "start" });
    next.focus({ preventScroll: true });
  }
}

function exported() {
  const judged = pairs
    .filter((pair) => choices.has(pair.dataset.exchange))
    .map((pair) => ({
      exchange: pair.dataset.exchange,
      flow: pair.dataset.flow,
      began: Number(pair.dataset.began),
      choice: choices.get(pair.dataset.exchange),
    }));
  return JSON.stringify({ v: Number(data.version), seed: Number(data.seed), judged });
}

for (const pair of pairs) {
  for (const button of pair.querySelectorAll("button")) {
    button.addEventListener("click", () => choose(pair, button.value));
  }
}
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const choice = { a: "a", b: "b", t: "tie", s: "skip" }[event.key.toLowerCase()];
  const at = document.activeElement && document.activeElement.closest("section.pair");
  const pair = at || pairs.find((one) => !choices.has(one.dataset.exchange));
  if (choice && pair) choose(pair, choice);
});
document.getElementById("export").addEventListener("click", () => {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([exported()], { type: "application/json" }));
  link.download = "judgements.json";
  link.click();
  URL.revokeObjectURL(link.href);
});
show();
