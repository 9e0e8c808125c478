// One dataflow: what is wrong with it, its time lines, a round by phase, sources and workers. Other tabs: tasks.js,
// config.js, history.js, logs.js.
import { ask, flowPath, session } from "./api.js";
import { chart } from "./chart.js";
import { configTab } from "./config.js";
import { act } from "./acting.js";
import { h, keyed, setText } from "./dom.js";
import { age, count, duration, lagText, many, moment, paintState, rate, roundMs, short, stateBadge } from "./format.js";
import { graphPanel } from "./graph.js";
import { historyTab } from "./history.js";
import { logsTab } from "./logs.js";
import { now, store } from "./store.js";
import { tasksTab } from "./tasks.js";

const TABS = [["", "Now"], ["tasks", "Tasks"], ["config", "Config"], ["history", "History"], ["logs", "Logs"]];
const ENDED = new Set(["stopped", "finished", "failed", "killed"]);

export function flowPage(name, tab) {
  const known = TABS.some(([key]) => key === tab) ? tab : "";
  const badge = stateBadge("starting");
  const chain = h("span", { class: "dim" });
  const facts = h("p", { class: "dim facts" });
  const actions = h("div", { class: "actions" });
  const troubles = h("div", { class: "troubles" });
  const gone = h("p", { class: "empty", hidden: true }, `There is no dataflow '${name}' in this registry (any more). `, h("a", { href: "#/" }, "All dataflows"));
  const root = `#/flow/${encodeURIComponent(name)}`;
  const tabs = h("nav", { class: "tabs", "aria-label": "Parts of this page" }, TABS.map(([key, label], n) =>
    h("a", { href: key ? `${root}/${key}` : root, "aria-current": key === known ? "page" : null, title: `key ${n + 1}` }, label)));
  const inside = { "": nowTab, tasks: tasksTab, config: configTab, history: historyTab, logs: logsTab }[known](name);
  const body = h("div", {}, troubles, tabs, inside.element);
  const element = h("div", {},
    h("p", { class: "crumbs" }, h("a", { href: "#/" }, "All dataflows"), " / "),
    h("div", { class: "title" }, h("h1", {}, name), badge, chain, h("span", { class: "spring" }), actions), facts, gone, body);
  if (session.write) {
    actions.append(
      h("button", { id: "start", onclick: () => act.start(name) }, "Start"),
      h("button", { id: "stop", onclick: () => act.stop(name) }, "Stop"),
      h("button", { id: "pause", onclick: () => act.pauseOrResume(name) }, "Pause"),
      h("button", { "aria-label": "One worker less", title: "One worker less (-)", onclick: () => act.scale(name, -1) }, "− worker"),
      h("button", { "aria-label": "One worker more", title: "One worker more (+)", onclick: () => act.scale(name, 1) }, "+ worker"));
  }

  function update() {
    const flow = store.flows.get(name);
    gone.hidden = Boolean(flow) || !store.looked;
    body.hidden = !flow;
    if (!flow) return;
    paintState(badge, flow.state);
    setText(chain, flow.chain ? `${flow.key} of chain ${flow.chain}` : "");
    setText(facts, flow.state === "unreadable" ? "" : told(flow));
    keyed(troubles, troublesOf(flow), (t) => t.what.split(" ")[0], () => h("div", { class: "alert bad", role: "alert" }, h("b", {}), " ", h("span", { class: "words" })), (box, t) => {
      setText(box.firstChild, t.what);
      setText(box.lastChild, t.words);
    });
    const button = actions.querySelector("#pause");
    if (button) {
      const ended = ENDED.has(flow.state);
      actions.querySelector("#start").hidden = !ended && flow.masters > 0;
      actions.querySelector("#stop").hidden = ended || !flow.masters;
      setText(button, flow.desired === "paused" ? "Resume" : "Pause");
      button.disabled = ENDED.has(flow.state) || flow.state === "unreadable";
    }
    inside.update?.(flow);
  }
  return { element, update, title: name, leave: inside.leave, save: inside.save, filter: inside.filter, flow: name };
}

function told(flow) {
  const parts = [
    `${flow.ready} of ${many(flow.wanted, "worker")} ready`, many(flow.tasks, "task"),
    flow.master ? `${flow.master} leads${flow.masters > 1 ? `, ${flow.masters - 1} standing by` : ""}` : "no master",
    `config ${flow.config_version}`, `last commit ${age(flow.last_commit_ms, now())} ago`,
    `${count(flow.records_in)} records in, ${count(flow.records_out)} out${flow.records_bad ? `, ${count(flow.records_bad)} bad` : ""}`,
    `submitted ${moment(flow.submitted_ms)}`,
    ...(flow.kept ? [keptText(flow.kept)] : []),
  ];
  return parts.join(" · ");
}

function keptText(kept) {
  const rows = Object.entries(kept.rows).map(([operator, number]) => `${operator} ${many(number, "row")}`);
  return [
    `keeps ${rows.join(", ") || "nothing yet"}`, `${short(kept.bytes)} bytes`,
    ...(kept.watermark_ms ? [`watermark ${moment(kept.watermark_ms)}`] : []),
    ...(kept.held_back_by ? [`held back by ${kept.held_back_by}`] : []),
    ...(kept.late ? [`${many(kept.late, "row")} too late`] : []),
    ...(kept.late_routed ? [`${many(kept.late_routed, "late record")} in their sink`] : []),
  ].join(", ");
}

function troublesOf(flow) {
  const found = [];
  if (flow.state === "stalled") found.push({ what: "Stalled.", words: `${many(flow.stalled, "task")} had something to do for long, and committed nothing.` });
  if (flow.state === "leaderless") found.push({ what: "Nobody leads it.", words: "All its masters are gone. Its tasks go on, but no worker is replaced, and nothing that is asked for is done. `scribengin start` starts a master." });
  if (flow.masters === 0 && !ENDED.has(flow.state) && flow.state !== "unreadable") found.push({ what: "No master is alive.", words: "Nobody places tasks or carries out edits." });
  if (flow.unassigned) found.push({ what: "Waiting.", words: `${many(flow.unassigned, "task")} without a worker.` });
  if (flow.config_error) found.push({ what: `Config version ${flow.config_latest} is refused; ${flow.config_version} is in force.`, words: flow.config_error });
  if (flow.error) found.push({ what: "Error.", words: flow.error });
  return found;
}

// -- now

const SPANS = [["5", "5 min"], ["30", "30 min"], ["360", "6 h"]];
let spanMinutes = 5;

function nowTab(name) {
  const charts = [
    chart({ title: "Throughput", unit: rate, series: [{ label: "in", column: 1 }, { label: "out", column: 2 }] }),
    chart({ title: "Lag", unit: (v) => short(v), series: [{ label: "records that wait", column: 3 }] }),
    chart({ title: "Round time", unit: duration, series: [{ label: "mean of all tasks", column: 4 }] }),
  ];
  const spans = h("fieldset", { class: "spans" }, h("legend", { class: "unseen" }, "How much time is shown"),
    SPANS.map(([minutes, label]) => h("label", {},
      h("input", { type: "radio", name: "span", value: minutes, checked: Number(minutes) === spanMinutes, onchange: () => { spanMinutes = Number(minutes); draw(); } }), h("span", {}, label))));
  const phases = h("div", { class: "phases" });
  const sources = h("tbody", {});
  const workers = h("tbody", {});
  const tasksInTrouble = h("div", {});
  const graph = graphPanel();
  const noWorkers = h("p", { class: "empty" }, "No worker has registered.");
  const noSources = h("p", { class: "empty" }, "No task has reported of its sources yet.");
  const element = h("div", {},
    h("div", { class: "panel-head bare" }, h("h2", {}, "Time lines"), h("span", { class: "spring" }), spans),
    h("div", { class: "charts" }, charts.map((one) => one.element)),
    h("section", { class: "panel" }, h("h2", {}, "A round by phase"), phases),
    h("div", { class: "columns" },
      h("section", { class: "panel" }, h("h2", {}, "Sources and sinks"), h("table", {}, headings(["Source and stream, sink"], ["Rate", "Lag"]), sources), noSources),
      h("section", { class: "panel" }, h("h2", {}, "Workers"), h("table", { class: "cards" }, headings(["Worker", "State"], ["Tasks", "In", "Out", "Lag", "Report"]), workers), noWorkers)),
    tasksInTrouble, graph.element);
  let rows = [];
  let asked = 0;
  let latest = null;

  const draw = () => {
    const to = rows.length ? rows[rows.length - 1][0] : now();
    for (const one of charts) one.update(rows, to - spanMinutes * 60_000, to);
  };

  async function fetchDetail() {
    const turn = (asked += 1);
    const found = await ask(flowPath(name)).catch(() => null);
    if (!found || turn !== asked) return;
    rows = found.rows;
    latest = found;
    draw();
    paint(found);
  }

  function paint(found) {
    keyed(sources, [...found.sources.flatMap(linesOf), ...found.sinks.map(sinkLine)], (l) => l.key, edgeRow, paintEdgeRow);
    keyed(workers, found.workers, (w) => w.name, workerRow, paintWorker);
    noWorkers.hidden = found.workers.length > 0;
    noSources.hidden = found.sources.length > 0;
    workers.parentElement.hidden = !found.workers.length;
    sources.parentElement.hidden = !found.sources.length && !found.sinks.length;
    const wrong = [...found.stalled.map((t) => ({ key: `s${t.task}`, what: t.task, words: `has committed nothing for ${duration(t.behind_s * 1000)}` })),
      ...found.errors.map((t) => ({ key: `e${t.task}`, what: t.task, words: t.error }))];
    keyed(tasksInTrouble, wrong.length ? [wrong] : [], () => "box", () => h("section", { class: "panel" }, h("h2", {}, "Tasks in trouble"), h("ul", { class: "wrong" })), (box, items) =>
      keyed(box.lastChild, items, (i) => i.key, () => h("li", {}, h("b", {}), " ", h("span", { class: "words" })), (line, i) => {
        setText(line.firstChild, i.what);
        setText(line.lastChild, i.words);
      }));
  }

  let lastSeq = 0;
  return {
    element,
    update(flow) {
      graph.update([name]);
      paintPhases(phases, flow.round);
      if (store.seq !== lastSeq) {
        lastSeq = store.seq;
        fetchDetail();
      } else if (latest) paint(latest);
    },
  };
}

const headings = (words, numbers) => h("thead", {}, h("tr", {},
  words.map((one) => h("th", { scope: "col" }, one)), numbers.map((one) => h("th", { scope: "col", class: "number" }, one))));

const linesOf = (source) => [{ key: source.source, label: source.source, perSecond: source.in_per_s, records: source.lag_records, about: source.lag_about, whole: true },
  ...source.streams.map((stream) => ({ key: `${source.source} ${stream.stream}`, label: stream.stream, records: stream.records }))];

const sinkLine = (sink) => ({ key: `> ${sink.sink}`, label: `→ ${sink.sink}`, perSecond: sink.out_per_s, whole: true });

const edgeRow = (line) => h("tr", { class: line.whole ? "whole" : "part" }, h("th", { scope: "row" }, line.label), h("td", { class: "number" }), h("td", { class: "number" }));

function paintEdgeRow(row, line) {
  setText(row.children[1], line.perSecond === undefined ? "" : rate(line.perSecond));
  setText(row.children[2], line.records === undefined ? "" : lagText(line.records, line.about, count));
}

const workerRow = (worker) => h("tr", {}, h("th", { scope: "row" }, worker.name), h("td", { "data-label": "State" }),
  ["Tasks", "In", "Out", "Lag", "Report"].map((label) => h("td", { class: "number", "data-label": label })));

function paintWorker(row, worker) {
  const [, state, tasks, read, written, lag, report] = row.children;
  setText(state, worker.leaving ? "leaving" : worker.ready ? "ready" : "starting");
  setText(tasks, count(worker.tasks));
  setText(read, rate(worker.in_per_s));
  setText(written, rate(worker.out_per_s));
  setText(lag, lagText(worker.lag_records, worker.lag_about));
  setText(report, worker.silent_s === null ? "–" : `${duration(worker.silent_s * 1000)} ago`);
}

function paintPhases(box, phases) {
  if (!phases) return setText(box, "No task has had a round yet.");
  const whole = roundMs(phases) || 1;
  if (!box.bar) {
    const parts = Object.keys(phases).map((phase, n) => ({ phase, bar: h("i", { class: `phase p${n}` }), words: h("li", { class: `p${n}` }) }));
    box.bar = parts;
    box.replaceChildren(h("div", { class: "bar", "aria-hidden": "true" }, parts.map((p) => p.bar)), h("ul", { class: "plain" }, parts.map((p) => p.words)));
  }
  for (const part of box.bar) {
    part.bar.style.flexGrow = String(Math.max(phases[part.phase] / whole, 0.004));
    setText(part.words, `${part.phase} ${duration(phases[part.phase])}`);
  }
}
