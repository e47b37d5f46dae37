/**
 * The console of the demo's page: who is signed in, how the connection stands, and what is shown for it.
 */

import { Calls } from "./calls.js";
import { canBeToken } from "./client.js";
import { Connection } from "./connection.js";
import { announce, say } from "./dom.js";
import { forgetToken, rememberToken, token } from "./session.js";
import { Tools } from "./tools.js";

const part = (id) => document.getElementById(id);
const endpoint = new URL(part("console").dataset.endpoint, location.href);
endpoint.protocol = location.protocol === "https:" ? "wss:" : "ws:";

const connection = new Connection(endpoint);
const calls = new Calls(connection, part("calls"), part("no-calls"));
const tools = new Tools(connection, part("tools"), part("tools-problem"), (tool, values) => calls.start(tool, values));
const input = part("token");
let isSignedIn = false;
/** Each further failed try would say the same again. */
let announced = null;

function signIn(text) {
  if (!canBeToken(text)) {
    refuse(text === "" ? "Enter a token." : "A token has no spaces and no other than plain characters.");
    return;
  }
  rememberToken(text);
  say(part("sign-in-problem"), "");
  say(part("sign-in-progress"), "Signing in…");
  connection.start(text);
}

function refuse(why) {
  say(part("sign-in-progress"), "");
  say(part("sign-in-problem"), why);
  input.setAttribute("aria-invalid", "true");
  input.focus();
}

function showWorkbench() {
  if (isSignedIn) {
    return;
  }
  isSignedIn = true;
  input.value = "";
  input.removeAttribute("aria-invalid");
  say(part("sign-in-progress"), "");
  part("sign-in").hidden = true;
  part("workbench").hidden = false;
  calls.restore();
}

function signOut(why = "") {
  isSignedIn = false;
  announced = null;
  forgetToken();
  connection.stop();
  calls.clear();
  tools.clear();
  part("workbench").hidden = true;
  part("sign-in").hidden = false;
  if (why) {
    refuse(why);
  } else {
    announce("Signed out");
    input.focus();
  }
}

connection.addEventListener("change", async () => {
  const { state, words, server } = connection;
  part("connection").dataset.state = state;
  part("connection-words").textContent = words;
  part("retry").hidden = state !== "waiting";
  if (state === "connected" || state === "waiting") {
    const isNew = !isSignedIn;
    showWorkbench();
    if (state !== announced) {
      announced = state;
      announce(words);
    }
    if (state === "connected") {
      say(part("server"), [server?.title ?? server?.name, server?.version].filter(Boolean).join(" "));
      await tools.load();
      const focused = document.activeElement;
      // The form is gone, but browsers notice only later that the focus went with it.
      if (isNew && (focused === document.body || part("sign-in").contains(focused))) {
        tools.focus();
      }
    }
  } else if (state === "refused") {
    signOut(words);
  }
});

part("sign-in").addEventListener("submit", (event) => {
  event.preventDefault();
  signIn(input.value.trim());
});
part("sign-out").addEventListener("click", () => signOut());
part("retry").addEventListener("click", () => {
  part("connection").focus(); // the button goes away
  connection.retry();
});

// Only now, since without this script the form could do nothing but send the token away.
part("sign-in").hidden = false;
const remembered = token();
if (remembered !== null) {
  signIn(remembered);
}
