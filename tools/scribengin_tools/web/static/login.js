// The token of a link stands behind `#`: the browser sends it to nobody, and it leaves the address bar at once.
const form = document.getElementById("login");
const wrong = document.getElementById("wrong");

async function enter(token, user) {
  wrong.hidden = true;
  let answer;
  try {
    answer = await fetch("/login", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ token, user }),
    });
  } catch {
    return tell("The server does not answer. Is `scribengin web` still running?");
  }
  if (answer.ok) return location.replace("/");
  tell((await answer.json()).error);
}

function tell(words) {
  wrong.textContent = words;
  wrong.hidden = false;
  form.token.focus();
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  enter(form.token.value, form.user.value);
});

const linked = new URLSearchParams(location.hash.slice(1));
if (linked.get("token")) {
  history.replaceState(null, "", "/login");
  form.token.value = linked.get("token");
  form.user.value = linked.get("user") ?? "";
  enter(form.token.value, form.user.value);
} else if ((await fetch("/api/session").catch(() => null))?.ok) {
  location.replace("/"); // a link from elsewhere came without the cookie; this request has it
}
