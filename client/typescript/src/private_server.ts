// SPDX-License-Identifier: Apache-2.0

/** A private server: `nnpa-server` as a child process, on a Unix socket of this user alone. */

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, open, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

import { TransportError } from "./errors.js";

/** The server's program, on the PATH. */
const PROGRAM = "nnpa-server";
const READY = "nnpa-server listening on ";
/** Milliseconds before a server that was asked to end is killed. */
const STOP_TIMEOUT = 10_000;
const NOT_ON_THE_PATH =
  "nnpa-server is not on the PATH: `pip install '.[server]'` in a clone of nnpa brings it";
const ANOTHER_SERVER = "Or use a server that runs already: connect('host:port').";
/** The most lines of the server's log in an error. */
const MAX_LOG_LINES = 3;

/** `nnpa-server` as a child. It ends when `stop` is called, and with this process. */
export class PrivateServer {
  readonly #child: ChildProcess;
  readonly #folder: string;

  private constructor(
    child: ChildProcess,
    folder: string,
    readonly target: string,
  ) {
    this.#child = child;
    this.#folder = folder;
  }

  /** Starts a server and waits until it listens. Throws TransportError when it does not. */
  static async start(): Promise<PrivateServer> {
    const folder = await mkdtemp(join(tmpdir(), "nnpa-"));
    const log = await open(join(folder, "server.log"), "w");
    const listen = ["--listen", `unix:${join(folder, "nnpa.sock")}`, "--exit-with-parent"];
    const child = spawn(PROGRAM, listen, { stdio: ["pipe", "pipe", log.fd], detached: true });
    try {
      const target = await ready(child);
      child.unref();
      for (const pipe of [child.stdin, child.stdout]) {
        (pipe as { unref?: () => void } | null)?.unref?.();
      }
      return new PrivateServer(child, folder, target);
    } catch (error) {
      const lines = (await readFile(join(folder, "server.log"), "utf8")).trim().split("\n");
      await rm(folder, { recursive: true, force: true });
      const message = error instanceof Error ? error.message : String(error);
      const why = isMissing(error) ? NOT_ON_THE_PATH : message;
      const causes = [why, ...lines.slice(-MAX_LOG_LINES).filter(Boolean)].join(" / ");
      const text = `the private server did not start: ${causes}`;
      const options = { cause: error, advice: ANOTHER_SERVER };
      throw new TransportError("UNAVAILABLE", text, "", {}, options);
    } finally {
      await log.close();
    }
  }

  /** Ends the server and removes its socket. May be repeated. */
  async stop(): Promise<void> {
    if (this.#child.exitCode === null && this.#child.signalCode === null) {
      const ended = once(this.#child, "exit");
      this.#child.kill("SIGTERM");
      const timer = setTimeout(() => this.#child.kill("SIGKILL"), STOP_TIMEOUT);
      await ended;
      clearTimeout(timer);
    }
    await rm(this.#folder, { recursive: true, force: true });
  }
}

/** Returns whether a program could not be started because it does not exist. */
function isMissing(error: unknown): boolean {
  return error instanceof Error && "code" in error && error.code === "ENOENT";
}

/** Waits for the ready line and returns the address in it. */
async function ready(child: ChildProcess): Promise<string> {
  return new Promise((resolve, reject) => {
    child.once("error", reject);
    child.once("exit", (code) => { reject(new Error(`it ended with code ${String(code)}`)); });
    if (child.stdout !== null) {
      createInterface(child.stdout).once("line", (line) => {
        if (line.startsWith(READY)) {
          resolve(line.slice(READY.length).trim());
        }
      });
    }
  });
}
