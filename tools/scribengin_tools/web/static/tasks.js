// The tasks of a dataflow, a page at a time: the server sorts, filters and cuts, so thousands are no more work than ten.
import { ask, flowPath } from "./api.js";
import { debounced, h, keyed, setAttribute, setText } from "./dom.js";
import { age, count, duration, lagText, paintState, rate, short, stateBadge } from "./format.js";
import { now, store } from "./store.js";

const A_PAGE = matchMedia("(max-width: 980px)").matches ? 20 : 50;
const COLUMNS = [
  ["in_per_s", "In", (t) => rate(t.in_per_s)], ["out_per_s", "Out", (t) => rate(t.out_per_s)],
  ["lag_records", "Lag", (t) => lagText(t.lag_records, t.lag_about)], ["behind_s", "Behind", (t) => (t.behind_s ? duration(t.behind_s * 1000) : "–")],
  [null, "Last commit", (t) => age(t.last_commit_ms, now())],
  ["round_ms", "Round", (t) => (t.round_ms === null ? "–" : duration(t.round_ms))], ["failures", "Failures", (t) => short(t.failures)],
];
const WORDS = [["task", "Task"], ["state", "State"], ["worker", "Worker"]];

export function tasksTab(name) {
  const view = { order: "task", descending: false, offset: 0, words: "" };
  const filter = h("input", { id: "filter", type: "search", placeholder: "Filter by task, worker, state or error", "aria-label": "Filter tasks (key /)" });
  const body = h("tbody", {});
  const heads = [...WORDS, ...COLUMNS].map(([key, label], n) => h("th", { scope: "col", class: n >= WORDS.length ? "number" : null },
    key ? h("button", { class: "sort", onclick: () => sort(key) }, label) : label));
  const table = h("table", { class: "cards tasks" }, h("thead", {}, h("tr", {}, heads)), body);
  const shown = h("span", { class: "dim", role: "status" });
  const back = h("button", { onclick: () => go(-1) }, "‹ Previous");
  const on = h("button", { onclick: () => go(1) }, "Next ›");
  const order = h("label", { class: "narrow-only" }, "Order ", h("select", { onchange: (event) => sort(event.target.value, false) },
    [...WORDS, ...COLUMNS].filter(([key]) => key).map(([key, label]) => h("option", { value: key }, label))));
  const empty = h("p", { class: "empty", hidden: true });
  const element = h("section", { class: "panel" },
    h("div", { class: "panel-head" }, h("h2", {}, "Tasks"), shown, h("span", { class: "spring" }), order, filter),
    table, empty, h("div", { class: "pager" }, back, on));
  let turn = 0;
  let found = null;

  async function fetchPage() {
    const mine = (turn += 1);
    const query = new URLSearchParams({ order: view.order, descending: view.descending ? "1" : "0", offset: view.offset, limit: A_PAGE, words: view.words });
    const page = await ask(flowPath(name, `/tasks?${query}`)).catch(() => null);
    if (!page || mine !== turn) return;
    found = page;
    view.offset = page.offset;
    paint();
  }

  function paint() {
    keyed(body, found.tasks, (t) => t.task, row, paintRow);
    const last = found.offset + found.tasks.length;
    const of = found.found === found.total ? count(found.total) : `${count(found.found)} (of ${count(found.total)} in all)`;
    setText(shown, found.tasks.length ? `${count(found.offset + 1)}–${count(last)} of ${of}` : "");
    [back.disabled, on.disabled] = [found.offset === 0, last >= found.found];
    back.parentElement.hidden = found.found <= A_PAGE;
    table.hidden = !found.tasks.length;
    empty.hidden = found.tasks.length > 0;
    setText(empty, found.total ? "No task has these words in its name, worker, state or error." : "No task has been reported of yet: they are made once the master has found the streams.");
    heads.forEach((head, n) => {
      const key = [...WORDS, ...COLUMNS][n][0];
      if (key) setAttribute(head, "aria-sort", key === view.order ? (view.descending ? "descending" : "ascending") : "none");
    });
    order.querySelector("select").value = view.order;
  }

  function sort(key, toggles = true) {
    const words = WORDS.some(([one]) => one === key);
    view.descending = toggles && view.order === key ? !view.descending : !words;
    Object.assign(view, { order: key, offset: 0 });
    fetchPage();
  }

  function go(pages) {
    view.offset = Math.max(0, view.offset + pages * A_PAGE);
    fetchPage();
  }

  filter.addEventListener("input", debounced(150, () => {
    Object.assign(view, { words: filter.value, offset: 0 });
    fetchPage();
  }));
  let lastSeq = -1;
  return {
    element,
    filter,
    update() {
      if (store.seq === lastSeq) return;
      lastSeq = store.seq;
      fetchPage();
    },
  };
}

const row = () => h("tr", {}, h("th", { scope: "row" }, h("span", {}), h("p", { class: "task-error" })), h("td", { class: "state-cell" }, stateBadge("idle")),
  h("td", { "data-label": "Worker" }), COLUMNS.map(([, label]) => h("td", { class: "number", "data-label": label })));

function paintRow(element, task) {
  const [name, state, worker, ...numbers] = element.children;
  setText(name.firstChild, task.task);
  setText(name.lastChild, task.error ? task.error.split("\n").pop() : "");
  setAttribute(name.lastChild, "title", task.error);
  paintState(state.firstChild, task.stalled ? "stalled" : task.state);
  setText(worker, task.worker ?? "–");
  COLUMNS.forEach(([, , cell], n) => setText(numbers[n], cell(task)));
  element.classList.toggle("troubled", task.stalled || Boolean(task.error));
}
