// SPDX-License-Identifier: Apache-2.0

/** Sessions: a guest on an emulated machine. */

import process from "node:process";
import { debuglog, inspect } from "node:util";

import type { MessageInitShape } from "@bufbuild/protobuf";

import { allochelperZtensor } from "./allocation.js";
import type { OperationInit } from "./call.js";
import { trace } from "./config.js";
import { ZDNN_1D, ZDNN_2D, ZDNN_3D, ZDNN_NHWC } from "./constants.gen.js";
import { generateTransformedDesc, initPreTransformedDesc } from "./descriptors.js";
import { machineName, shownSession } from "./display.js";
import { typeOf, type UserArray } from "./elements.js";
import { TransportError } from "./errors.js";
import {
  AcceleratorService,
  type Machine,
  type Session as SessionMessage,
  type SessionLimits,
} from "./gen/nnpa/zdnn/v1/accelerator_pb.js";
import type { OperationResult } from "./gen/nnpa/zdnn/v1/operation_pb.js";
import type { ZtensorInfo, ZtensorSchema } from "./gen/nnpa/zdnn/v1/tensor_pb.js";
import { Guest, type Listeners } from "./guest.js";
import { load, type LoadOptions, type Model, type Network } from "./network.js";
import { type ChangeableOptions, type SessionOptions, sessionOptions } from "./options.js";
import type { PrivateServer } from "./private_server.js";
import { putZtensor, transform } from "./transfer.js";
import type { CallOptions, Transport } from "./transport.js";
import { createSession, type WaitOptions } from "./waiting.js";
import { Ztensor } from "./ztensor.js";

/** The usual layouts of 1 to 4 dims. */
const LAYOUTS = [ZDNN_1D, ZDNN_2D, ZDNN_3D, ZDNN_NHWC];
const logged = debuglog("nnpa");

/** The listeners that a session has instead of the usual ones. */
export type SessionListeners = Partial<Listeners>;

/** Milliseconds for the calls that open and close a session, unless `connectTimeout` differs. */
export const CONNECT_TIMEOUT = 10_000;

/** A ztensor's data beside its elements. */
export interface ZtensorOptions extends CallOptions {
  /** Default: ZDNN_1D, ZDNN_2D, ZDNN_3D, ZDNN_NHWC for 1 to 4 dims. */
  layout?: number;
  /** FP16 or BFLOAT of a Uint16Array's bits; a Float32Array is FP32. */
  type?: number;
}

/**
 * A guest on an emulated machine with a zDNN library and its ztensors; see `connect`.
 *
 * Calls run in the order in which they are made, awaited or not. `await using` closes it.
 */
export class Session {
  /** State that the session's ztensors share. @internal */
  readonly guest: Guest;
  readonly #server: PrivateServer | undefined;
  readonly #closing: CallOptions;
  #message: SessionMessage;
  #closed: Promise<void> | undefined;

  private constructor(
    transport: Transport,
    message: SessionMessage,
    listeners: SessionListeners,
    closing: CallOptions,
    server?: PrivateServer,
  ) {
    this.#message = shownSession(message);
    this.#closing = closing;
    this.#server = server;
    this.guest = new Guest(transport, message, {
      onWarning: listeners.onWarning ?? ((warning) => { process.emitWarning(warning); }),
      onDiagnostic: listeners.onDiagnostic ?? ((line) => { logged("%s", line.text); }),
    });
  }

  /** Opens a session on a connection. The session owns the connection and the private server. */
  static async open(
    transport: Transport,
    options: SessionOptions & SessionListeners & WaitOptions = {},
    calls: CallOptions = { timeout: CONNECT_TIMEOUT },
    server?: PrivateServer,
  ): Promise<Session> {
    const { session } = await sessionOptions(transport, options, calls);
    session.trace = trace();
    const message = await createSession(transport, session, calls, options);
    return new Session(transport, message, options, { timeout: calls.timeout }, server);
  }

  /** The resource name; it is the only credential of the session. */
  get name(): string {
    return this.#message.name;
  }

  /** The server's address. */
  get target(): string {
    return this.transport.target;
  }

  /** The connection, for other services of the server. */
  get transport(): Transport {
    return this.guest.transport;
  }

  /**
   * The routing ticket, metadata `nnpa-session-ticket`, by which a proxy leads calls over other
   * connections to the session's server; "" without a proxy.
   */
  get ticket(): string {
    return this.transport.ticket ?? "";
  }

  /** The session's machine, with its answer to NNPA-QAF. */
  get machine(): Machine | undefined {
    return this.#message.machine;
  }

  /** The version of zDNN, for example "1.2.0". */
  get library(): string {
    return this.#message.libraryVersion;
  }

  /** The session's limits. */
  get limits(): SessionLimits | undefined {
    return this.#message.limits;
  }

  /** The version of the server. */
  get serverVersion(): string {
    return this.#message.serverVersion;
  }

  /** Returns address, machine and version, and never the session's name, which is a key. */
  toString(): string {
    const state = this.#closed === undefined ? "open" : "closed";
    return `Session(${state} at ${this.target}, ${machineName(this.machine)}, zDNN ${this.library})`;
  }

  /** Shows the same in a REPL and in console.log. */
  [inspect.custom](): string {
    return this.toString();
  }

  /** Returns the same text for JSON. */
  toJSON(): string {
    return this.toString();
  }

  /**
   * Asks the server for the session as it is now: options, tensorCount, storedBytes, ... The result
   * prints its contents in one line, without its name.
   */
  async status(options?: CallOptions): Promise<SessionMessage> {
    const request = { name: this.name };
    this.#message = shownSession(
      await this.transport.unary(AcceleratorService.method.getSession, request, options),
    );
    return this.#message;
  }

  /** Lists the tensors that the server holds for the session, by ascending id. */
  listTensors(): Promise<ZtensorInfo[]> {
    return this.guest.exclusive(() => this.guest.listTensors());
  }

  /**
   * Changes options; those left out stay as they are. Ztensors stay.
   *
   * After a move to another machine the query functions answer from the old query result until `init`
   * or `refreshNnpaQueryResult` runs, as on the machine.
   */
  async update(changed: ChangeableOptions, options?: CallOptions): Promise<void> {
    await this.guest.flush();
    const { session, fields } = await sessionOptions(this.transport, changed, options);
    if (fields.length) {
      const request = { session: { ...session, name: this.name }, updateMask: { paths: fields } };
      this.#message = shownSession(
        await this.guest.exclusive(() =>
          this.transport.unary(AcceleratorService.method.updateSession, request, options),
        ),
      );
    }
  }

  /** Deletes the session with its ztensors, and ends a private server. May be repeated. */
  close(): Promise<void> {
    this.#closed ??= this.guest.exclusive(async () => {
      try {
        const request = { name: this.name };
        await this.transport.unary(AcceleratorService.method.deleteSession, request, this.#closing);
      } catch (error) {
        if (!(error instanceof TransportError)) {
          throw error;
        }
      } finally {
        this.transport.close();
        await this.#server?.stop();
      }
    });
    return this.#closed;
  }

  /** Closes the session at the end of `await using`. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  /**
   * Returns a transformed ztensor with the data of an array of `shape`, outermost dim first
   * (default: one dim). Throws TypeError for an array whose class has no float type of zDNN, and
   * RangeError for an array of another size.
   */
  async ztensor(
    array: UserArray,
    shape: readonly number[] = [array.length],
    options: ZtensorOptions = {},
  ): Promise<Ztensor> {
    const layout = options.layout ?? LAYOUTS[shape.length - 1];
    if (layout === undefined) {
      throw new TypeError(`shape: ${shape.length} dims, expected 1 to 4`);
    }
    const pre = initPreTransformedDesc(layout, typeOf(array, options.type), ...shape);
    const size = shape.reduce((product, dim) => product * dim, 1);
    if (array.length !== size) {
      const expected = `shape [${shape.join(", ")}] has ${size}`;
      throw new RangeError(`array: ${array.length} elements, ${expected}`);
    }
    const tfrmd = generateTransformedDesc(pre);
    const unallocated = Ztensor.unallocated(this.guest, pre, tfrmd);
    const ztensor = await allochelperZtensor(unallocated, options);
    const value = { ztensor: ztensor.ref() };
    return transform(
      ztensor,
      "transform_ztensor",
      [array],
      (data) => ({ operation: { case: "transformZtensor", value: { ...value, data } } }),
      options,
    );
  }

  /**
   * Copies a ztensor of another session or of a machine into the session, unchecked. `structure`
   * gives the fields of C's structure, `sticks` (little-endian) the buffer; left out, it is NULL.
   */
  async putZtensor(
    structure: MessageInitShape<typeof ZtensorSchema>,
    sticks?: Uint8Array,
    options?: CallOptions,
  ): Promise<Ztensor> {
    const ztensor = new Ztensor(this.guest, undefined, this.guest.newId());
    await putZtensor(ztensor, structure, sticks, options);
    return ztensor;
  }

  /**
   * Queues the verbs of `body`, and runs them with one Execute when it ends; returns the value of
   * `body`.
   *
   * Inside, a verb's promise resolves as soon as the verb is queued, and its ztensor may be used at
   * once; `results` gets the answers as the wire has them. A verb whose value is needed (`data`,
   * queries) first sends the queue. Verbs that other code calls in the session until `body` ends
   * join the list. When an operation fails, later operations have not run, and
   * `ZdnnError.operationIndex` is its index in the list. `options` hold for the list.
   */
  async pipeline<T>(
    body: (results: readonly OperationResult[]) => T | Promise<T>,
    options?: CallOptions,
  ): Promise<T> {
    const results = this.guest.begin(options);
    let value: T;
    try {
      value = await body(results);
    } catch (error) {
      await this.guest.end(false);
      throw error;
    }
    await this.guest.end(true);
    return value;
  }

  /** Runs the calls that an open pipeline has queued, so that their outputs exist. */
  flush(options?: CallOptions): Promise<void> {
    return this.guest.flush(options);
  }

  /**
   * Runs operations of the wire contract as they are, and returns their answers, errors included.
   * Queued calls of an open pipeline run first. Take ids for new tensors from `newId`.
   */
  async execute(
    operations: readonly OperationInit[],
    options?: CallOptions,
  ): Promise<OperationResult[]> {
    await this.guest.flush();
    return this.guest.exclusive(() => this.guest.execute(operations, options));
  }

  /**
   * Hosts an ONNX model and returns it, ready to run.
   *
   *     await using net = await session.load("model.onnx");
   *     const { y } = await net.run({ x: Float32Array.of(1, 2, 3, 4) });
   *
   * Throws NetworkError for a refusal of the client API, TransportError for a model that cannot be hosted.
   */
  load(model: Model, options?: LoadOptions): Promise<Network> {
    return load(this.guest, model, options);
  }

  /** Returns an id that no tensor of the session has had. */
  newId(): bigint {
    return this.guest.newId();
  }
}
