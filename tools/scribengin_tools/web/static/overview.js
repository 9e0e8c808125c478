// All dataflows: figures of the whole, the graph, a line each.
import { debounced, h, keyed, setText } from "./dom.js";
import { TROUBLED, age, count, duration, lagText, many, paintState, rate, roundMs, short, stateBadge } from "./format.js";
import { graphPanel } from "./graph.js";
import { spark } from "./chart.js";
import { inOrder, now, store } from "./store.js";

const COLUMNS = [
  ["workers", "Workers", (f) => `${f.ready}/${f.wanted}`], ["tasks", "Tasks", (f) => count(f.tasks)],
  ["in", "In", (f) => rate(f.in_per_s)], ["out", "Out", (f) => rate(f.out_per_s)], ["lag", "Lag", (f) => lagText(f.lag, f.lag_about)],
  ["commit", "Last commit", (f) => age(f.last_commit_ms, now())],
  ["round", "Round", (f) => (f.round ? duration(roundMs(f.round)) : "–")], ["failures", "Failures", (f) => short(f.failures)],
];

export function overview() {
  const tiles = h("dl", { class: "tiles" });
  const graph = graphPanel();
  const filter = h("input", { id: "filter", type: "search", placeholder: "Filter by name, chain or state", "aria-label": "Filter dataflows (key /)" });
  const shownCount = h("span", { class: "dim", role: "status" });
  const body = h("tbody", {});
  const empty = h("p", { class: "empty" });
  const table = h("table", { class: "cards flows" },
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Dataflow"), h("th", { scope: "col" }, "State"),
      COLUMNS.map(([, heading]) => h("th", { scope: "col", class: "number" }, heading)),
      h("th", { scope: "col", class: "number" }, "Records in"))), body);
  const panel = h("section", { class: "panel" },
    h("div", { class: "panel-head" }, h("h2", {}, "Dataflows"), shownCount, h("span", { class: "spring" }), filter), table, empty);
  const element = h("div", {}, h("h1", { class: "unseen" }, "All dataflows"), tiles, graph.element, panel);
  filter.addEventListener("input", debounced(80, update));

  function update() {
    const all = inOrder();
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const shown = all.filter((f) => words.every((word) => `${f.name} ${f.chain ?? ""} ${f.state}`.toLowerCase().includes(word)));
    keyed(tiles, figures(all), (t) => t.name, tile, paintTile);
    keyed(body, shown, (f) => f.name, row, paintRow);
    setText(shownCount, shown.length === all.length ? "" : `${shown.length} of ${all.length}`);
    table.hidden = !shown.length;
    empty.hidden = shown.length > 0;
    panel.hidden = !store.looked && !all.length;
    setText(empty, all.length ? "No dataflow has these words in its name, chain or state."
      : "There are no dataflows in this registry yet. `scribengin submit FLOW` starts one; it appears here by itself.");
    graph.update(shown.length === all.length || !shown.length ? null : shown.map((f) => f.name));
  }
  return { element, update, title: "All dataflows", filter };
}

function figures(all) {
  const sum = (key) => all.reduce((total, flow) => total + (flow[key] ?? 0), 0);
  const troubled = all.filter((flow) => TROUBLED.has(flow.state)).length;
  const states = [...new Set(all.map((flow) => flow.state))].sort((a, b) => TROUBLED.has(b) - TROUBLED.has(a) || a.localeCompare(b));
  return [
    { name: "Dataflows", value: count(all.length), note: states.map((state) => `${all.filter((f) => f.state === state).length} ${state}`).join(", "), bad: troubled > 0 },
    { name: "Records in", value: rate(sum("in_per_s")), note: many(sum("ready"), "worker") },
    { name: "Records out", value: rate(sum("out_per_s")), note: many(sum("tasks"), "task") },
    { name: "Lag", value: lagOf(all), note: "records wait to be read" },
  ];
}

function lagOf(all) {
  const told = all.filter((flow) => flow.state !== "unreadable");
  const known = told.filter((flow) => flow.lag !== null);
  const records = told.length && !known.length ? null : known.reduce((total, flow) => total + flow.lag, 0);
  return lagText(records, known.length < told.length || known.some((flow) => flow.lag_about));
}

const tile = () => h("div", { class: "tile" }, h("dt", {}), h("dd", { class: "value" }), h("dd", { class: "dim note" }));

function paintTile(element, told) {
  const [name, value, note] = element.children;
  setText(name, told.name);
  setText(value, told.value);
  setText(note, told.note);
  element.classList.toggle("bad", Boolean(told.bad));
}

function row(flow) {
  const line = spark();
  const element = h("tr", {},
    h("th", { scope: "row" }, h("a", { href: `#/flow/${encodeURIComponent(flow.name)}`, class: "flow-link" }, flow.name), h("span", { class: "chain dim" })),
    h("td", { class: "state-cell" }, stateBadge(flow.state)),
    COLUMNS.map(([key, heading]) => h("td", { class: `number ${key}`, "data-label": heading })),
    h("td", { class: "number sparkline", "data-label": "Records in" }, line.element));
  element.spark = line;
  return element;
}

function paintRow(element, flow) {
  paintState(element.querySelector(".state"), flow.state);
  setText(element.querySelector(".chain"), flow.chain ? ` ${flow.chain}` : "");
  element.classList.toggle("troubled", TROUBLED.has(flow.state));
  for (const [key, , cell] of COLUMNS) setText(element.querySelector(`.${key}`), flow.state === "unreadable" ? "–" : cell(flow));
  element.querySelector(".failures").classList.toggle("bad-text", flow.failures > 0);
  element.spark.update(store.sparks.get(flow.name) ?? []);
}
