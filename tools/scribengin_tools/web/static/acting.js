// What changes something: asks first, says what became of it. The server refuses all of it unless it was started with
// --write.
import { ask, flowPath, session } from "./api.js";
import { h } from "./dom.js";
import { store } from "./store.js";

export function toast(words, bad = false) {
  const box = h("p", { class: `toast ${bad ? "bad" : ""}` }, words);
  document.getElementById("toasts").append(box);
  setTimeout(() => box.remove(), bad ? 12_000 : 6_000);
}

// Resolves to whether the answer was yes.
export function sure(question, words, yes) {
  const dialog = document.getElementById("ask");
  dialog.replaceChildren(h("form", { method: "dialog" }, h("h2", { id: "ask-title" }, question), h("p", {}, words),
    h("div", { class: "actions" }, h("button", { value: "yes", class: "primary", autofocus: true }, yes), h("button", { value: "no" }, "Cancel"))));
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) => dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true }));
}

async function tried(work) {
  try {
    return await work();
  } catch (error) {
    toast(error.message, true);
    return null;
  }
}

// After an edit was written: what the master makes of it.
export async function tellVerdict(name, edited) {
  if (!edited.written) return toast(`The config of ${name} is like that already.`);
  toast(`Version ${edited.version} of ${name}: ${edited.changes.join(", ")}${edited.meanwhile ? `. Edited meanwhile, and kept: ${edited.meanwhile}` : ""}`);
  await tried(async () => {
    const seen = await ask(flowPath(name, `/verdict/${edited.version}`));
    toast(seen.seen ? `Accepted: ${seen.actions.join("; ") || "nothing has to be done"}` : `No master has looked at version ${edited.version} yet.`);
  });
}

export const act = {
  async pauseOrResume(name) {
    const flow = store.flows.get(name);
    if (!session.write || !flow) return;
    const resumes = flow.desired === "paused";
    if (!resumes && !(await sure(`Pause ${name}?`, "Every task finishes its round, commits it and waits. Workers stay.", "Pause"))) return;
    await tried(async () => {
      await ask(flowPath(name, resumes ? "/resume" : "/pause"), {});
      toast(resumes ? `${name} goes on.` : `${name} pauses: its tasks commit, then wait.`);
    });
  },
  async stop(name) {
    if (!(await sure(`Stop ${name}?`, "Every task finishes its round and commits it, then workers and masters leave. Start lets it go on from there.", "Stop"))) return;
    await tried(async () => {
      await ask(flowPath(name, "/stop"), {});
      toast(`${name} stops: its tasks commit, then all leave.`);
    });
  },
  async start(name) {
    if (!(await sure(`Start ${name}?`, "A master is launched, and it goes on from its committed positions.", "Start"))) return;
    await tried(async () => {
      await ask(flowPath(name, "/start"), {});
      toast(`${name} starts.`);
    });
  },
  async scale(name, by) {
    const flow = store.flows.get(name);
    if (!session.write || !flow) return;
    const wanted = Math.max(0, flow.wanted + by);
    if (wanted === flow.wanted) return toast(`${name} has no workers already.`);
    const what = by > 0 ? "One worker more is started." : "One worker gives its tasks back and goes.";
    if (!(await sure(`${wanted} workers for ${name}, instead of ${flow.wanted}?`, what, "Scale"))) return;
    await tried(async () => tellVerdict(name, await ask(flowPath(name, "/scale"), { workers: wanted })));
  },
  async rollBack(name, version) {
    if (!(await sure(`Back to version ${version} of ${name}?`, "The config becomes what it was at that version, as a new edit. Whether it runs or is paused stays.", "Roll back"))) return false;
    const edited = await tried(() => ask(flowPath(name, "/rollback"), { version }));
    if (edited) await tellVerdict(name, edited);
    return Boolean(edited);
  },
};
