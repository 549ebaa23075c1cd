// SPDX-License-Identifier: Apache-2.0

/** Waiting for a full server, which names the delay after which it may be asked again. */

import process from "node:process";
import { setTimeout as sleep } from "node:timers/promises";

import type { MessageInitShape } from "@bufbuild/protobuf";

import { waitLimit } from "./config.js";
import { TransportError } from "./errors.js";
import {
  AcceleratorService,
  type Session as SessionMessage,
  type SessionSchema,
} from "./gen/nnpa/zdnn/v1/accelerator_pb.js";
import type { CallOptions, Transport } from "./transport.js";

/** How long to wait for a full server. */
export interface WaitOptions {
  /** Milliseconds for which to retry at a full server. Default: ZDNN_WAIT, seconds, or 0. */
  wait?: number;
}

/**
 * Creates a session; retries at a full server until `wait` is over, each time after 0.5 to 1.5
 * times the server's delay, then throws its refusal.
 */
export async function createSession(
  transport: Transport,
  session: MessageInitShape<typeof SessionSchema>,
  calls: CallOptions,
  options: WaitOptions,
): Promise<SessionMessage> {
  const wait = waitLimit(options.wait);
  const until = Date.now() + wait;
  for (let told = false; ; told = true) {
    try {
      return await transport.unary(AcceleratorService.method.createSession, { session }, calls);
    } catch (error) {
      const left = until - Date.now();
      const isFull = error instanceof TransportError && error.reason === "SESSION_QUOTA_EXCEEDED";
      if (!isFull || error.retryDelay === undefined || left <= 0) {
        throw error;
      }
      if (!told) {
        const limit = `${wait / 1000} s at most`;
        process.emitWarning(`${transport.target} is full: waiting ${limit} for a session`, "nnpa");
      }
      const delay = error.retryDelay * (0.5 + Math.random());
      await sleep(Math.min(left, delay), undefined, calls.signal ? { signal: calls.signal } : {});
    }
  }
}
