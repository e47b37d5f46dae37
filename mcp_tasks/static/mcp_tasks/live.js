/**
 * Keeps an open list of tasks true: asks the server every few seconds what has changed in the rows that are shown.
 *
 * Where the server has a socket for it, it is told when one of them changed, and asks at once. Nothing depends on it.
 *
 * Rows never move and none is added, so that nothing slips away under a pointer; newer tasks are only counted. It
 * asks ever more rarely while the server is in trouble, not at all while nobody looks, and stops when nobody has done
 * anything for half an hour: an open page alone must not keep somebody signed in.
 */

const EVERY_MS = 5_000;
const SLOWEST_MS = 60_000;
const LEFT_ALONE_MS = 30 * 60_000;
const MARKED_MS = 1_000;
/** From the first word of a change to the question: several changes at once are one. */
const GATHER_MS = 400;
const RECONNECT_MS = 30_000;
const FORBIDDEN = 4403;
const SIGNS_OF_LIFE = ["pointerdown", "pointermove", "keydown", "wheel", "touchstart"];

class SignedOut extends Error {}

/** Told by the server that a row changed. Never tried again where it was not to be had at all, or is forbidden. */
class Doorbell {
  #address;
  #ring;
  #socket = null;
  #triedAt = -Infinity;
  #isOver;

  constructor(path, ring) {
    this.#isOver = !path;
    this.#address = new URL(path ?? "", document.baseURI);
    this.#address.protocol = location.protocol === "https:" ? "wss:" : "ws:";
    this.#ring = ring;
  }

  open() {
    if (this.#isOver || this.#socket !== null || performance.now() - this.#triedAt < RECONNECT_MS) {
      return;
    }
    this.#triedAt = performance.now();
    const socket = new WebSocket(this.#address);
    this.#socket = socket;
    let wasOpen = false;
    socket.addEventListener("open", () => {
      wasOpen = true;
      socket.send(JSON.stringify({ refs: rows().map((row) => row.dataset.ref) }));
    });
    socket.addEventListener("message", (event) => this.#heard(JSON.parse(event.data)));
    socket.addEventListener("close", (event) => {
      this.#isOver ||= !wasOpen || event.code === FORBIDDEN;
      if (this.#socket === socket) {
        this.#socket = null;
      }
    });
  }

  close() {
    const socket = this.#socket;
    if (socket?.readyState === WebSocket.CONNECTING) {
      // Broken off now, it would stand in the browser's console as a failure.
      socket.addEventListener("open", () => socket.close());
    } else {
      socket?.close();
    }
    this.#socket = null;
    this.#triedAt = -Infinity;
  }

  #heard({ ref, revision }) {
    const row = rows().find((row) => row.dataset.ref === ref);
    if (row !== undefined && (revision === null || revision > Number(row.dataset.revision))) {
      this.#ring();
    }
  }
}

class LiveList {
  #panel;
  #words;
  #wait = EVERY_MS;
  #timer = null;
  #asking = null;
  #wasRung = false;
  #doorbell;
  #state = "on";
  #lastInput = performance.now();

  constructor(panel) {
    this.#panel = panel;
    this.#words = panel.dataset;
    panel.hidden = false;
    for (const sign of SIGNS_OF_LIFE) {
      document.addEventListener(sign, () => (this.#lastInput = performance.now()), { passive: true });
    }
    document.addEventListener("visibilitychange", () => this.#visibilityChanged());
    panel.querySelector(".mcp-resume").addEventListener("click", () => this.#resume());
    this.#doorbell = new Doorbell(panel.dataset.socket, () => this.#rung());
    this.#doorbell.open();
    this.#plan(EVERY_MS);
  }

  #plan(wait) {
    clearTimeout(this.#timer);
    if (this.#state === "on" && !document.hidden) {
      this.#timer = setTimeout(() => this.#ask(), wait);
    }
  }

  #rung() {
    if (this.#wasRung || this.#wait > EVERY_MS) {
      return; // asked soon anyway, or the server is in trouble
    }
    this.#wasRung = true; // an answer that is on its way may be older
    if (this.#asking === null) {
      this.#plan(GATHER_MS);
    }
  }

  #visibilityChanged() {
    if (document.hidden) {
      clearTimeout(this.#timer);
      this.#asking?.abort();
    } else {
      this.#plan(0);
    }
  }

  #resume() {
    this.#state = "on";
    this.#wait = EVERY_MS;
    this.#lastInput = performance.now();
    this.#panel.querySelector(".mcp-resume").hidden = true;
    this.#plan(0);
  }

  #end(state, words, canResume) {
    this.#state = state;
    clearTimeout(this.#timer);
    this.#doorbell.close();
    this.#say(words);
    this.#panel.querySelector(".mcp-resume").hidden = !canResume;
  }

  #say(words) {
    this.#panel.querySelector(".mcp-checked").textContent = words;
  }

  async #ask() {
    if (performance.now() - this.#lastInput > LEFT_ALONE_MS) {
      this.#end("stopped", this.#words.wordsStopped, true);
      return;
    }
    const asking = new AbortController();
    this.#asking = asking;
    this.#wasRung = false;
    try {
      this.#show(await this.#fetch(asking.signal));
      this.#wait = EVERY_MS;
      this.#doorbell.open();
    } catch (problem) {
      if (asking.signal.aborted) {
        return; // hidden meanwhile; asked again when it is shown
      }
      if (problem instanceof SignedOut) {
        this.#end("paused", this.#words.wordsPaused, false);
        return;
      }
      this.#wait = Math.min(2 * this.#wait, SLOWEST_MS);
      this.#say(this.#words.wordsTrouble);
    } finally {
      if (this.#asking === asking) {
        this.#asking = null;
      }
    }
    this.#plan(this.#wasRung ? GATHER_MS : this.#wait);
  }

  async #fetch(signal) {
    const query = new URLSearchParams(this.#words.filters);
    query.set("since", this.#words.since);
    query.set("refs", rows().map((row) => row.dataset.ref).join(","));
    // A redirect leads to the page for signing in.
    const response = await fetch(`${this.#words.url}?${query}`, {
      signal,
      redirect: "manual",
      cache: "no-store",
      headers: { Accept: "application/json" },
    });
    if (response.type === "opaqueredirect" || response.status === 403) {
      throw new SignedOut();
    }
    if (!response.ok) {
      throw new Error(`status ${response.status}`);
    }
    return response.json();
  }

  #show(answer) {
    for (const row of rows()) {
      const task = answer.tasks[row.dataset.ref];
      if (task === undefined) {
        write(row.querySelector(".mcp-note"), this.#words.wordsGone);
      } else {
        showTask(row, task);
      }
    }
    const newer = this.#panel.querySelector(".mcp-newer");
    newer.hidden = answer.newer === 0;
    const number = answer.newer >= 99 ? "99+" : String(answer.newer);
    const words = answer.newer === 1 ? this.#words.wordsNewerOne : this.#words.wordsNewer;
    write(newer, words.replace("{number}", number));
    this.#say(this.#words.wordsChecked.replace("{time}", answer.checked));
  }
}

function rows() {
  return [...document.querySelectorAll("#result_list .mcp-live[data-ref]")];
}

/** Touches the page only where something differs: a selection in the text stays. */
function write(element, text) {
  if (element !== null && element.textContent !== text) {
    element.textContent = text;
  }
}

function showTask(row, task) {
  const line = row.closest("tr");
  const badge = row.querySelector(".mcp-badge");
  const name = `mcp-is-${task.state}`;
  if (!badge.classList.contains(name)) {
    badge.className = `mcp-badge ${name} mcp-changed`;
    setTimeout(() => badge.classList.remove("mcp-changed"), MARKED_MS);
  }
  row.dataset.revision = task.revision;
  write(badge.querySelector(".mcp-glyph"), task.glyph);
  write(badge.querySelector(".mcp-word"), task.word);
  write(row.querySelector(".mcp-note"), task.note);
  const bar = line.querySelector("progress");
  bar.hidden = task.percent === null;
  bar.value = task.percent ?? 0;
  const isEmpty = task.amount === "" && task.message === "";
  write(line.querySelector(".mcp-amount"), isEmpty ? "—" : task.amount);
  const message = line.querySelector(".mcp-message");
  write(message, task.message);
  message.title = task.message;
  write(line.querySelector(".mcp-age"), task.age);
  const left = line.querySelector(".mcp-left");
  write(left, task.left);
  left.classList.toggle("mcp-short", task.short);
}

const panel = document.getElementById("mcp-live");
if (panel !== null) {
  new LiveList(panel);
}
