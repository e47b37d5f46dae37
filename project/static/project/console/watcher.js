/**
 * Watches tasks over whatever socket is open: each unfinished task is in exactly one listen.
 */

const FIRST_WAIT_MS = 1_000;
const LONGEST_WAIT_MS = 30_000;
const FINISHED = new Set(["completed", "failed", "cancelled"]);

export function isFinished(task) {
  return FINISHED.has(task.status);
}

export class Watcher {
  #connection;
  #handlers;
  #unfinished = new Set();
  #wait = FIRST_WAIT_MS;
  #socketNumber = 0;

  /**
   * Handlers: `changed(task)`, `missing(taskId)` when the server accepts no listen for it, and
   * `troubled(taskId, text)` when it says why it sends nothing at the moment.
   */
  constructor(connection, handlers) {
    this.#connection = connection;
    this.#handlers = handlers;
    let wasConnected = false;
    connection.addEventListener("change", () => {
      const isConnected = connection.state === "connected";
      if (isConnected && !wasConnected) {
        this.#socketNumber += 1;
        this.#wait = FIRST_WAIT_MS;
        this.#listen([...this.#unfinished]);
      }
      wasConnected = isConnected;
    });
  }

  /** From now on, also over every later socket, until it has finished. */
  add(taskId) {
    this.#unfinished.add(taskId);
    if (this.#connection.state === "connected") {
      this.#listen([taskId]);
    }
  }

  forgetAll() {
    this.#unfinished.clear();
  }

  #listen(taskIds) {
    const wanted = taskIds.filter((taskId) => this.#unfinished.has(taskId));
    if (wanted.length === 0 || this.#connection.state !== "connected") {
      return; // without a connection, the next one listens for all of them
    }
    const stopWhenDone = () => wanted.some((taskId) => this.#unfinished.has(taskId)) || stop();
    const stop = this.#connection.listen(wanted, {
      acknowledged: (accepted) => {
        this.#wait = FIRST_WAIT_MS;
        for (const taskId of wanted.filter((each) => !accepted.includes(each))) {
          this.#unfinished.delete(taskId);
          this.#handlers.missing(taskId);
        }
        stopWhenDone();
      },
      changed: (task) => {
        this.#handlers.changed(task);
        if (isFinished(task)) {
          this.#unfinished.delete(task.taskId);
          stopWhenDone();
        }
      },
      ended: (problem) => this.#listenLater(wanted, problem),
    });
  }

  /** The server ended a listen, or never began it; the tasks go on. */
  #listenLater(taskIds, problem) {
    if (problem !== null) {
      for (const taskId of taskIds) {
        this.#handlers.troubled(taskId, `No live updates at the moment: ${problem.message}`);
      }
    }
    const socketNumber = this.#socketNumber;
    setTimeout(() => {
      // A newer socket has listened for all of them already.
      if (socketNumber === this.#socketNumber) {
        this.#listen(taskIds);
      }
    }, this.#wait);
    this.#wait = Math.min(this.#wait * 2, LONGEST_WAIT_MS);
  }
}
