// SPDX-License-Identifier: Apache-2.0

/** Lists of operations over one stream, which costs less than a call each. */

import { type ClientDuplexStream, Metadata, type ServiceError, status } from "@grpc/grpc-js";

import type { ExecuteResponse } from "./gen/nnpa/zdnn/v1/accelerator_pb.js";

/** Milliseconds for which a stream idles: while there is one, Node.js does not end the program. */
const MAX_IDLE = 1000;

type Call = ClientDuplexStream<Buffer, ExecuteResponse>;

interface Pending {
  resolve: (answer: ExecuteResponse) => void;
  reject: (error: ServiceError) => void;
}

/** A stream that `begin` begins, and begins anew when it has ended. One list is in flight at a time. */
export class ListStream {
  readonly #begin: () => Call;
  readonly #idle = setTimeout(() => { this.#endIdle(); }, MAX_IDLE).unref();
  #call: Call | undefined;
  #pending: Pending | undefined;

  constructor(begin: () => Call) {
    this.#begin = begin;
  }

  /** Whether a list is in flight. */
  get isBusy(): boolean {
    return this.#pending !== undefined;
  }

  /** Sends a list, and returns its answer; throws ServiceError as a separate call does. */
  ask(request: Buffer): Promise<ExecuteResponse> {
    return new Promise((resolve, reject) => {
      this.#pending = { resolve, reject };
      this.#call ??= this.#open();
      this.#call.write(request);
    });
  }

  /** Cancels the list in flight, and the stream with it. */
  cancel(): void {
    this.#call?.cancel();
  }

  /** Ends the stream: in order, if nothing is in flight. */
  close(): void {
    clearTimeout(this.#idle);
    if (this.isBusy) {
      this.cancel();
    } else {
      this.#endIdle();
    }
  }

  #open(): Call {
    const call = this.#begin();
    call.on("data", (answer: ExecuteResponse) => {
      const pending = this.#pending;
      this.#pending = undefined;
      this.#idle.refresh();
      pending?.resolve(answer);
    });
    call.on("error", (error) => { this.#ended(call, error as ServiceError); });
    call.on("status", () => {
      const details = "the stream of lists ended without an answer";
      const parts = { code: status.CANCELLED, details, metadata: new Metadata() };
      this.#ended(call, Object.assign(new Error(details), parts));
    });
    return call;
  }

  #ended(call: Call, error: ServiceError): void {
    if (this.#call === call) {
      this.#call = undefined;
      this.#pending?.reject(error);
      this.#pending = undefined;
    }
  }

  #endIdle(): void {
    if (!this.isBusy) {
      this.#call?.end();
      this.#call = undefined;
    }
  }
}
