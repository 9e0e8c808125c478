// Which part of the page is shown, what stands above it, and the keyboard.
import { act } from "./acting.js";
import { ask, listen, session } from "./api.js";
import { h, setText } from "./dom.js";
import { flowPage } from "./flow.js";
import { age, clockTime } from "./format.js";
import { overview } from "./overview.js";
import { now, store, take } from "./store.js";

const byId = (id) => document.getElementById(id);
const main = byId("main");
const unseen = h("p", { class: "empty" }, "Nothing of the registry has been seen yet.");
let page = null;
let shownHash = null;

// A part of the address as it was meant; as it stands there, where it is none that a page would write.
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

function show() {
  if (location.hash === "#main") return;
  const [, kind, name, tab] = location.hash.split("/").map(decoded);
  const moved = shownHash !== null && shownHash !== location.hash;
  shownHash = location.hash;
  page = kind === "flow" && name ? flowPage(name, tab ?? "") : overview();
  main.replaceChildren(page.element);
  document.title = `${page.title} · Scribengin`;
  update();
  if (moved) {
    scrollTo(0, 0);
    main.focus({ preventScroll: true });
  }
}

function update() {
  if (!store.looked && !store.trouble) return;
  banner();
  if (!page) return;
  const shown = store.looked ? page.element : unseen;
  if (main.firstChild !== shown) main.replaceChildren(shown);
  if (store.looked) page.update();
}

function banner() {
  const box = byId("trouble");
  const words = !store.connected ? "The connection to this page's server is lost; what is shown is from before. It is tried again."
    : store.trouble ? `${store.trouble} (since ${clockTime(store.troubleSinceMs)}; it is tried again by itself)` : "";
  box.hidden = !words;
  if (words) setText(box, words);
  const live = byId("live");
  const good = store.connected && !store.trouble;
  live.className = `live ${good ? "ok" : "bad"}`;
  setText(live, good ? (now() - store.atMs < 30_000 ? "live" : `as of ${age(store.atMs, now())} ago`) : "not live");
}

// -- the keyboard

const KEYS = [
  ["?", "this list"], ["/", "filter"], ["o", "all dataflows"], ["j, k", "next, previous dataflow in the list; Enter opens it"],
  ["1 2 3 4 5", "now, tasks, config, history, logs of a dataflow"], ["Esc", "close this, leave a field"],
];
const WRITING = [["p", "pause the dataflow, or let it go on"], ["+, -", "one worker more, one less"], ["Ctrl+S", "save the config"]];

function help() {
  const dialog = byId("help");
  const keys = session.write ? [...KEYS, ...WRITING] : KEYS;
  dialog.replaceChildren(h("form", { method: "dialog" }, h("h2", { id: "help-title" }, "Keyboard"),
    h("dl", { class: "shortcuts" }, keys.flatMap(([key, does]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, does)])),
    h("p", { class: "dim" }, "Tab reaches everything. In a time line the arrow keys read values."), h("button", { autofocus: true }, "Close")));
  dialog.showModal();
}

function along(step) {
  const links = [...main.querySelectorAll("a.flow-link")];
  if (links.length) links[(links.indexOf(document.activeElement) + step + links.length) % links.length].focus();
}

const ON_KEY = {
  "?": help,
  "/": () => page.filter?.focus(),
  o: () => { location.hash = "#/"; },
  j: () => along(1),
  k: () => along(document.activeElement?.matches("a.flow-link") ? -1 : 0),
  p: () => page.flow && act.pauseOrResume(page.flow),
  "+": () => page.flow && act.scale(page.flow, 1),
  "-": () => page.flow && act.scale(page.flow, -1),
};

addEventListener("keydown", (event) => {
  if ((event.ctrlKey || event.metaKey) && event.key === "s" && page?.save) {
    event.preventDefault();
    return page.save();
  }
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const typing = event.target.matches?.("input:not([type=radio]), textarea, select");
  if (typing) return event.key === "Escape" && event.target.blur();
  const tab = "12345".indexOf(event.key);
  if (tab >= 0 && page?.flow) return main.querySelectorAll(".tabs a")[tab].click();
  if (event.key in ON_KEY) {
    event.preventDefault();
    ON_KEY[event.key]();
  }
});

byId("keys").addEventListener("click", help);
byId("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
byId("logout").addEventListener("click", async () => {
  await ask("/logout", {}).catch(() => null);
  location.replace("/login");
});
addEventListener("hashchange", show);

Object.assign(session, await ask("/api/session"));
setText(byId("registry"), session.registry);
setText(byId("user"), session.user);
byId("mode").hidden = false;
setText(byId("mode"), session.write ? "may edit" : "read-only");
show();
listen((told) => {
  take(told);
  update();
}, (connected) => {
  store.connected = connected;
  banner();
});
setInterval(update, 5_000); // ages grow while nothing comes
