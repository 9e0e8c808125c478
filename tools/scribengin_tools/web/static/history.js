// The versions of a config, and what happened to the dataflow.
import { act } from "./acting.js";
import { ask, flowPath, mayPass, session } from "./api.js";
import { h, keyed, setText } from "./dom.js";
import { moment } from "./format.js";
import { isWell, now } from "./store.js";

const AGAIN_MS = 5_000; // of a rewind, or of tasks that were moved, the overview tells nothing

export function historyTab(name) {
  const edits = h("tbody", {});
  const events = h("tbody", {});
  const wrong = h("p", { class: "alert bad", role: "alert", hidden: true });
  const head = (...words) => h("thead", {}, h("tr", {}, words.map((word) => h("th", { scope: "col" }, word))));
  const noEvents = h("p", { class: "empty", hidden: true }, "Nothing has happened to it yet.");
  const element = h("div", {}, wrong,
    h("section", { class: "panel" }, h("h2", {}, "Versions of the config"),
      h("table", { class: "cards history" }, head("Version", "When", "Who", "Outcome", "Changed", "Did", ...(session.write ? [""] : [])), edits)),
    h("section", { class: "panel" }, h("h2", {}, "Events"), h("table", { class: "cards history" }, head("When", "What", "Message"), events), noEvents));
  let inForce = null;
  let failed = false;
  let turn = 0;
  let askedMs = 0;
  let asking = false;

  async function fetchHistory() {
    const mine = (turn += 1);
    failed = false;
    askedMs = now();
    asking = true;
    await fetchAs(mine);
    if (mine === turn) asking = false;
  }

  async function fetchAs(mine) {
    let found;
    try {
      found = await ask(flowPath(name, "/history"));
    } catch (error) {
      if (mine !== turn) return;
      setText(wrong, error.message);
      wrong.hidden = false;
      failed = mayPass(error);
      return;
    }
    if (mine !== turn) return;
    wrong.hidden = !found.unreadable.length;
    setText(wrong, found.unreadable.map((why) => `Left out: ${why}.`).join(" "));
    noEvents.hidden = found.events.length > 0;
    events.parentElement.hidden = !found.events.length;
    inForce = found.in_force;
    keyed(edits, found.edits, (e) => e.version, editRow, paintEdit);
    keyed(events, found.events.map((e, n) => ({ ...e, key: `${e.at_ms} ${e.kind} ${found.events.length - n}` })), (e) => e.key, eventRow, () => {});
  }

  const editRow = (edit) => h("tr", {}, h("th", { scope: "row" }), ["When", "Who", "Outcome", "Changed", "Did"].map((label) => h("td", { "data-label": label })),
    session.write ? h("td", {}, h("button", { "aria-label": `Roll back to version ${edit.version}`, onclick: async () => (await act.rollBack(name, edit.version)) && fetchHistory() }, "Roll back")) : null);

  function paintEdit(row, edit) {
    const [version, when, who, outcome, changed, did, back] = row.children;
    const current = edit.version === inForce;
    setText(version, `${edit.version}${current ? " in force" : ""}`);
    setText(when, moment(edit.at_ms));
    setText(who, edit.author ?? "unknown");
    setText(outcome, edit.outcome);
    outcome.className = edit.outcome === "refused" ? "bad-text" : "";
    setText(changed, edit.changes.join(", ") || (edit.version === 0 ? "submitted" : "–"));
    setText(did, edit.error ?? (edit.actions.join("; ") || "–"));
    row.classList.toggle("whole", current);
    if (back) back.firstChild.hidden = current || edit.outcome === "refused";
  }

  const eventRow = (event) => h("tr", {}, h("td", { class: "when" }, moment(event.at_ms)), h("td", { "data-label": "What" }, event.kind), h("td", { "data-label": "Message", class: "words" }, event.message));

  let seen = null;
  return {
    element,
    update(flow) {
      const mark = `${flow.config_version} ${flow.config_latest} ${flow.config_error} ${flow.state} ${flow.master} ${flow.ready} ${flow.failures}`;
      const late = !asking && Math.abs(now() - askedMs) > AGAIN_MS;
      if (mark !== seen || (isWell() && (failed || late))) fetchHistory();
      seen = mark;
    },
  };
}
