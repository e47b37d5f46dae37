/**
 * Keeps a client connected: reconnects with back-off when its socket is cut, and says in words how it stands.
 *
 * Sends the event "change" when `state` or `words` are different. States: "off", "connecting", "connected",
 * "waiting" (for the next try), and "refused" (the server does not accept the token; it does not try again).
 */

import { Client, NoAnswer, RpcError } from "./client.js";

const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 15_000;
/** After these another try with the same token would end the same. */
const REFUSALS = {
  4401: "The server does not accept this token.",
  4403: "The server does not let the owner of this token in.",
};
/** What the usual close codes mean, where the server gave no reason of its own. */
const REASONS = {
  4500: "The server met a problem of its own.",
  4503: "The server is busy or restarting.",
  4429: "The server has no room for more connections of this owner.",
};
const SILENCE_MS = 25_000;
const PROBE_PATIENCE_MS = 10_000;

export class Connection extends EventTarget {
  state = "off";
  words = "";
  server = null;
  #address;
  #token = null;
  #client = null;
  #failures = 0;
  #timer = undefined;
  #probe = undefined;

  constructor(address) {
    super();
    this.#address = address;
    // A network that is back is a better reason to try than a timer.
    addEventListener("online", () => this.retry());
  }

  start(token) {
    this.stop();
    this.#token = token;
    this.#failures = 0;
    this.#connect();
  }

  stop() {
    this.#token = null;
    this.server = null;
    this.#abandon();
    this.#become("off", "");
  }

  /** Try now, when it waits for the next try anyway. */
  retry() {
    if (this.state === "waiting") {
      this.#connect();
    }
  }

  /** The result of a request; throws as `Client.request` does. */
  async request(method, params, options) {
    if (this.state !== "connected") {
      throw new NoAnswer("There is no connection to the server.");
    }
    return this.#client.request(method, params, options);
  }

  /** As `Client.listen`, on the socket that is open now. */
  listen(taskIds, handlers) {
    return this.#client.listen(taskIds, handlers);
  }

  #connect() {
    this.#abandon();
    this.#become("connecting", this.#failures ? "Connecting again…" : "Connecting…");
    let opened = false;
    // An abandoned client may still report its end; it must not disturb its successor.
    const current = (act) => (value) => client === this.#client && act(value);
    const client = new Client(this.#address, this.#token, {
      opened: current(() => {
        opened = true;
        this.#greet(client);
      }),
      closed: current(({ code, reason }) => this.#closed(code, reason, opened)),
      heard: current(() => this.#expectMore(client)),
    });
    this.#client = client;
  }

  /** An open socket is not yet an accepted token: only an answer is. */
  async #greet(client) {
    try {
      const found = await client.request("server/discover", {}, { patienceMs: PROBE_PATIENCE_MS });
      if (client !== this.#client) {
        return;
      }
      this.server = found._meta?.["io.modelcontextprotocol/serverInfo"] ?? null;
      this.#failures = 0;
      this.#become("connected", "Connected");
    } catch (problem) {
      if (client === this.#client && (problem instanceof RpcError || problem instanceof NoAnswer)) {
        this.#wait(problem.message);
      }
    }
  }

  /** A peer that vanished leaves an open socket behind, and a browser sends no pings: ask after a silence. */
  #expectMore(client) {
    clearTimeout(this.#probe);
    this.#probe = setTimeout(() => {
      client.request("server/discover", {}, { patienceMs: PROBE_PATIENCE_MS }).catch(() => {
        if (client === this.#client) {
          this.#wait("The server has gone silent.");
        }
      });
    }, SILENCE_MS);
  }

  #closed(code, reason, opened) {
    if (code in REFUSALS) {
      this.#abandon();
      this.#become("refused", REFUSALS[code]);
    } else if (opened) {
      const why = reason ? `The server ended the connection: ${reason}.` : REASONS[code];
      this.#wait(why ?? "The connection was cut.");
    } else {
      this.#wait("The server cannot be reached.");
    }
  }

  #wait(why) {
    this.#abandon();
    const longest = Math.min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** this.#failures);
    // Many pages lose a server at the same moment; they should not all come back at the same moment.
    const waitMs = longest * (0.75 + Math.random() / 4);
    this.#failures += 1;
    this.#timer = setTimeout(() => this.#connect(), waitMs);
    const seconds = Math.ceil(waitMs / 1000);
    this.#become("waiting", `${why} Next try in ${seconds} ${seconds === 1 ? "second" : "seconds"}.`);
  }

  #abandon() {
    clearTimeout(this.#timer);
    clearTimeout(this.#probe);
    const client = this.#client;
    this.#client = null;
    client?.close();
  }

  #become(state, words) {
    this.state = state;
    this.words = words;
    this.dispatchEvent(new Event("change"));
  }
}
