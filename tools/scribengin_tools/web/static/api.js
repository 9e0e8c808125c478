// Asking the server, and hearing from it.
export const session = { csrf: "", write: false, user: "", registry: "" };

export class Refused extends Error {
  constructor(status, words) {
    super(words);
    this.status = status;
  }
}

// Whether the same may be answered later: the server, or its registry, was away.
export const mayPass = (error) => error.status === 0 || error.status > 500;

export async function ask(path, body) {
  const sends = body !== undefined;
  let answer;
  try {
    answer = await fetch(path, sends
      ? { method: "POST", headers: { "Content-Type": "application/json", "X-Scribengin-Csrf": session.csrf }, body: JSON.stringify(body) }
      : {});
  } catch {
    throw new Refused(0, "the server does not answer");
  }
  if (answer.status === 401) {
    location.replace("/login");
    throw new Refused(401, "log in again");
  }
  const value = await answer.json().catch(() => ({ error: `the server answered ${answer.status}` }));
  if (!answer.ok) throw new Refused(answer.status, value.error);
  return value;
}

export const flowPath = (name, rest = "") => `/api/flows/${encodeURIComponent(name)}${rest}`;

// While the page is not seen it does not listen, and the server looks rarely.
export function listen(seen, connected) {
  let source = null;
  const open = () => {
    if (source || document.hidden) return;
    source = new EventSource("/api/events");
    source.addEventListener("state", (event) => {
      connected(true);
      seen(JSON.parse(event.data));
    });
    source.addEventListener("error", async () => {
      connected(false);
      if (source?.readyState !== EventSource.CLOSED) return;
      source = null;
      await ask("/api/session").catch(() => null); // logged out meanwhile: it goes to the login page
      setTimeout(open, 2000);
    });
  };
  const close = () => {
    source?.close();
    source = null;
  };
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  open();
}
