// The last lines that each process of a dataflow has written, where it ran on the server's machine.
import { ask, flowPath } from "./api.js";
import { h, setText } from "./dom.js";

export function logsTab(name) {
  const wrong = h("p", { class: "alert bad", role: "alert", hidden: true });
  const none = h("p", { class: "empty", hidden: true }, `No output of ${name} is on the machine of this page. `, h("code", {}, `scribengin logs ${name}`), " on another one may have some.");
  const found = h("div", {});
  const element = h("div", {}, wrong, none, found, h("div", { class: "actions" }, h("button", { onclick: fetchLogs }, "Look again")));
  const panel = (one) => h("section", { class: "panel" }, h("h2", {}, one.heading), h("pre", { class: "output mono", tabindex: "0", "aria-label": `Output of ${one.heading}` }, one.text || "(nothing)"));

  async function fetchLogs() {
    try {
      const { outputs } = await ask(flowPath(name, "/logs"));
      none.hidden = outputs.length > 0;
      found.replaceChildren(...outputs.map(panel));
      for (const output of found.querySelectorAll(".output")) output.scrollTop = output.scrollHeight;
      wrong.hidden = true;
    } catch (error) {
      setText(wrong, error.message);
      wrong.hidden = false;
    }
  }

  fetchLogs();
  return { element };
}
