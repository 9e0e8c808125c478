// The config as text. While one types the server says what the edit would change and do, or what is wrong with it; it is
// saved with the version that it was read at, so that nobody's edit is lost.
import { ask, flowPath, mayPass, session } from "./api.js";
import { tellVerdict, toast } from "./acting.js";
import { debounced, h, setText } from "./dom.js";
import { isWell, store } from "./store.js";

const drafts = new Map(); // dataflow -> { text, base }: what was typed survives a look at another page

addEventListener("beforeunload", (event) => {
  if ([...drafts.values()].some((draft) => draft.text !== draft.base.text)) event.preventDefault();
});

export function configTab(name) {
  const text = h("textarea", { id: "config", spellcheck: "false", autocomplete: "off", rows: 24, readonly: !session.write, "aria-describedby": "config-state", "aria-label": `Config of ${name}, YAML` });
  const state = h("p", { id: "config-state", class: "dim" }, "Reading …");
  const meanwhile = h("div", { class: "alert warn", role: "alert", hidden: true });
  const verdict = h("div", { class: "verdict", role: "status" });
  const difference = h("pre", { class: "difference", "aria-label": "Difference to the config as it stands", tabindex: "0", hidden: true });
  const save = h("button", { class: "primary", disabled: true, onclick: () => store_() }, "Save");
  const drop = h("button", { disabled: true, onclick: () => reload() }, "Discard");
  const element = h("section", { class: "panel editor" },
    h("div", { class: "panel-head" }, h("h2", {}, "Config"), state),
    session.write ? null : h("p", { class: "alert" }, "This page is read-only: ", h("code", {}, "scribengin web --write"), " serves one that edits. ", h("code", {}, `scribengin config edit ${name}`), " does, too."),
    meanwhile,
    h("div", { class: session.write ? "editing" : "editing reading-only" }, text, h("div", { class: "beside", hidden: !session.write }, verdict, difference)),
    session.write ? h("div", { class: "actions" }, save, drop, h("span", { class: "dim" }, "Ctrl+S saves")) : null);
  let base = null;
  let good = false;
  let turn = 0;
  let saving = false;
  let again = null; // what could not be asked
  let told = false; // whether the version is, which may be taken over later

  const dirty = () => base !== null && text.value !== base.text;

  // `mine`: the text stays, and is compared with the config as it is by now. What is typed while that is fetched is never
  // dropped: it is a text to the config that it was typed over.
  async function reload(mine = false) {
    const before = text.value;
    let found;
    again = null;
    try {
      found = await ask(flowPath(name, "/config"));
    } catch (error) {
      if (mayPass(error)) again = () => reload(mine);
      told = false;
      return setText(state, error.message);
    }
    if (!mine && base !== null && text.value !== before) return check();
    base = found;
    if (!mine) text.value = base.text;
    remember();
    meanwhile.hidden = true;
    tellVersion();
    verdict.replaceChildren(h("p", { class: "dim" }, session.write ? "Edit the text: here stands what that would change." : ""));
    difference.hidden = true;
    check();
  }

  // The overview tells later than the config of which version is in force, but goes on to tell it.
  function tellVersion() {
    told = true;
    const inForce = Math.max(base.in_force, store.flows.get(name)?.config_version ?? 0);
    setText(state, `version ${base.version}${inForce === base.version ? ", in force" : `, while ${inForce} is in force`}`);
  }

  function remember() {
    if (dirty()) drafts.set(name, { text: text.value, base });
    else drafts.delete(name);
    drop.disabled = !dirty();
    save.disabled = saving || !dirty() || !good;
  }

  async function check() {
    const mine = (turn += 1);
    again = null;
    if (!dirty()) {
      verdict.replaceChildren(h("p", { class: "dim" }, session.write ? "Edit the text: here stands what that would change." : ""));
      difference.hidden = true;
      return remember();
    }
    let checked;
    try {
      checked = await ask(flowPath(name, "/check"), { text: text.value, version: base.version });
    } catch (error) {
      checked = { error: error.message, changes: [], actions: [], difference: [], meanwhile: null };
      if (mine === turn && mayPass(error)) again = check;
    }
    if (mine !== turn) return;
    good = !checked.error && !checked.meanwhile;
    show(checked);
    remember();
  }

  function show(checked) {
    text.setAttribute("aria-invalid", checked.error ? "true" : "false");
    const list = (heading, lines) => (lines.length ? [h("h3", {}, heading), h("ul", {}, lines.map((line) => h("li", {}, line)))] : []);
    verdict.replaceChildren(...(checked.error
      ? [h("p", { class: "alert bad" }, h("b", {}, "Cannot be saved. "), checked.error)]
      : checked.meanwhile ? [h("p", { class: "dim" }, "Against the config as it is by now, your text:")]
      : [h("p", { class: "alert good" }, h("b", {}, "Can be saved."))]),
      ...list("Changes", checked.changes), ...(checked.error ? [] : list("Then", checked.actions)));
    difference.hidden = !checked.difference.length;
    difference.replaceChildren(...checked.difference.map((line) => h("span", { class: { "+": "added", "-": "removed", "@": "place" }[line[0]] ?? "same" }, `${line}\n`)));
    if (checked.meanwhile) conflict(`Somebody else has edited this config meanwhile: ${checked.meanwhile}.`);
  }

  function conflict(words) {
    meanwhile.replaceChildren(h("p", {}, words), h("div", { class: "actions" },
      h("button", { onclick: () => reload() }, "Take theirs, drop mine"),
      h("button", { onclick: () => reload(true) }, "Compare mine with theirs")));
    meanwhile.hidden = false;
  }

  async function store_() {
    if (save.disabled) return;
    saving = true;
    remember();
    try {
      const edited = await ask(flowPath(name, "/config"), { text: text.value, version: base.version });
      drafts.delete(name);
      await reload();
      tellVerdict(name, edited);
    } catch (error) {
      if (error.status === 409) conflict(error.message);
      else toast(error.message, true);
    } finally {
      saving = false;
      remember();
    }
  }

  const soon = debounced(300, check);
  text.addEventListener("input", () => {
    good = false;
    remember();
    soon();
  });
  const draft = drafts.get(name);
  if (draft) {
    base = draft.base;
    text.value = draft.text;
    setText(state, `version ${base.version}, with your edit`);
    check();
  } else reload();

  let seen = null;
  return {
    element,
    save: store_,
    update() {
      const latest = store.flows.get(name)?.config_latest;
      if (again && isWell() && !saving) again();
      else if (seen !== null && latest !== seen && base && latest !== base.version && !saving) dirty() ? check() : reload();
      else if (told) tellVersion();
      seen = latest;
    },
  };
}
