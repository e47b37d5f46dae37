/**
 * JSON-RPC over one WebSocket, for as long as that socket lives.
 *
 * It sends requests and listens, and hands back answers. It knows nothing of reconnecting: that is connection.js.
 */

const PROTOCOL_VERSION = "2026-07-28";
const SUBSCRIPTION_ID = "io.modelcontextprotocol/subscriptionId";
const PATIENCE_MS = 30_000;

/** The server knows nothing of earlier frames, so each request says again what this client can do. */
const REQUEST_META = {
  "io.modelcontextprotocol/protocolVersion": PROTOCOL_VERSION,
  "io.modelcontextprotocol/clientCapabilities": {
    elicitation: { form: {} },
    extensions: { "io.modelcontextprotocol/tasks": {} },
  },
};

/** The server's own "no", with the code and the data it gave. */
export class RpcError extends Error {
  constructor({ code, message, data }) {
    super(message);
    this.code = code;
    this.data = data;
  }
}

/** No answer will come: the socket is gone, or the server has been silent for too long. */
export class NoAnswer extends Error {}

/** The caller took its request back. */
export class Withdrawn extends Error {}

/** A subprotocol is a token of HTTP; anything else would make the browser refuse to connect at all. */
export function canBeToken(text) {
  return /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/.test(text);
}

export class Client {
  #socket;
  #handlers;
  #pending = new Map();
  #listens = new Map();
  #nextId = 1;
  #ended = false;

  /** Handlers: `opened()`, `closed({code, reason})` once, and `heard()` for each message. */
  constructor(address, token, handlers) {
    this.#handlers = handlers;
    // A browser sets no headers on a WebSocket, and addresses end up in logs: the token goes as a subprotocol.
    this.#socket = new WebSocket(address, ["mcp", `bearer.${token}`]);
    this.#socket.addEventListener("open", () => handlers.opened());
    this.#socket.addEventListener("message", (event) => this.#receive(event.data));
    this.#socket.addEventListener("close", (event) => this.#end(event));
  }

  /** The result of a request. Throws RpcError, NoAnswer, or Withdrawn when `signal` is aborted. */
  request(method, params = {}, { patienceMs = PATIENCE_MS, signal = null } = {}) {
    return new Promise((resolve, reject) => {
      const id = this.#nextId++;
      const settle = (finish) => (value) => {
        clearTimeout(timer);
        this.#pending.delete(id);
        signal?.removeEventListener("abort", withdraw);
        finish(value);
      };
      const withdraw = () => {
        this.#send({ method: "notifications/cancelled", params: { requestId: id } });
        settle(reject)(new Withdrawn("The call was taken back."));
      };
      const timer =
        patienceMs === Infinity
          ? undefined
          : setTimeout(
              () => settle(reject)(new NoAnswer(`The server did not answer within ${patienceMs / 1000} seconds.`)),
              patienceMs,
            );
      signal?.addEventListener("abort", withdraw);
      this.#pending.set(id, { resolve: settle(resolve), reject: settle(reject) });
      if (!this.#send({ id, method, params: { ...params, _meta: REQUEST_META } })) {
        settle(reject)(new NoAnswer("There is no connection to the server."));
      }
    });
  }

  /**
   * Listen for changes of tasks. Handlers: `acknowledged(ids)`, `changed(task)`, and `ended(problem)`, where
   * problem is null when the server ended it in order. Returns a function that ends it.
   */
  listen(taskIds, handlers) {
    const id = this.#nextId++;
    this.#listens.set(id, handlers);
    this.#send({ id, method: "subscriptions/listen", params: { notifications: { taskIds }, _meta: REQUEST_META } });
    return () => {
      if (this.#listens.delete(id)) {
        this.#send({ method: "notifications/cancelled", params: { requestId: id } });
      }
    };
  }

  /** Does not wait for the other side: a peer that vanished would never say goodbye. */
  close() {
    this.#socket.close(1000);
    this.#end({ code: 1000, reason: "" });
  }

  #send(message) {
    if (this.#socket.readyState !== WebSocket.OPEN) {
      return false;
    }
    this.#socket.send(JSON.stringify({ jsonrpc: "2.0", ...message }));
    return true;
  }

  #receive(text) {
    this.#handlers.heard();
    const message = JSON.parse(text);
    if (message.method !== undefined) {
      this.#notified(message.method, message.params ?? {});
    } else if (this.#pending.has(message.id)) {
      const { resolve, reject } = this.#pending.get(message.id);
      message.error ? reject(new RpcError(message.error)) : resolve(message.result);
    } else {
      this.#endListen(message.id, message.error ? new RpcError(message.error) : null);
    }
  }

  #notified(method, params) {
    const listen = this.#listens.get(params._meta?.[SUBSCRIPTION_ID]);
    if (method === "notifications/subscriptions/acknowledged") {
      listen?.acknowledged(params.notifications?.taskIds ?? []);
    } else if (method === "notifications/tasks") {
      listen?.changed(params);
    } else if (method === "notifications/cancelled") {
      this.#endListen(params.requestId, null);
    }
  }

  #endListen(id, problem) {
    const listen = this.#listens.get(id);
    this.#listens.delete(id);
    listen?.ended(problem);
  }

  #end({ code, reason }) {
    if (this.#ended) {
      return;
    }
    this.#ended = true;
    // Whoever listened learns of the close from connection.js and listens again on the next socket.
    this.#listens.clear();
    for (const { reject } of [...this.#pending.values()]) {
      reject(new NoAnswer("The connection was lost before the server answered."));
    }
    this.#handlers.closed({ code, reason });
  }
}
