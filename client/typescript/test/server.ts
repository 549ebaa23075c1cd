// SPDX-License-Identifier: Apache-2.0

/** Real servers for tests, on the listeners that they ask for. */

import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";

const READY = "nnpa-server listening on ";

/** A server process and its addresses. */
export interface Served extends AsyncDisposable {
  targets: string[];
}

/** Starts a server of the PATH and waits until it listens on all addresses. */
export async function serving(listen: readonly string[], ...flags: string[]): Promise<Served> {
  const addresses = listen.flatMap((address) => ["--listen", address]);
  const child = spawn("nnpa-server", ["--exit-with-parent", ...flags, ...addresses], {
    stdio: ["pipe", "pipe", "ignore"],
  });
  const targets: string[] = [];
  for await (const line of createInterface(child.stdout)) {
    targets.push(line.slice(READY.length).trim());
    if (targets.length === listen.length) {
      break;
    }
  }
  return {
    targets,
    [Symbol.asyncDispose]: async () => {
      const ended = once(child, "exit");
      child.kill();
      await ended;
    },
  };
}
