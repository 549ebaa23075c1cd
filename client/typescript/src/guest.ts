// SPDX-License-Identifier: Apache-2.0

/**
 * A guest on the emulated machine: the one place from which operations leave the client.
 *
 * A call runs at once, or joins the list of an open pipeline. Calls that are not awaited run one after
 * the other. Every Execute begins with freeing the tensors whose objects have been dropped since the
 * last one, so dropping costs no round trip.
 */

import { type Call, type CallTensor, free, type OperationInit } from "./call.js";
import { NnpaError, renumbered, TransportError, ZdnnError, ZdnnWarning } from "./errors.js";
import {
  AcceleratorService,
  type Session as SessionMessage,
} from "./gen/nnpa/zdnn/v1/accelerator_pb.js";
import type { Diagnostic, OperationResult } from "./gen/nnpa/zdnn/v1/operation_pb.js";
import { ZdnnStatus } from "./gen/nnpa/zdnn/v1/status_pb.js";
import type { ZtensorInfo } from "./gen/nnpa/zdnn/v1/tensor_pb.js";
import { isWarning } from "./status.js";
import { NOTHING_HAS_RUN } from "./texts.gen.js";
import type { CallOptions, Transport } from "./transport.js";

const OK: number = ZdnnStatus.ZDNN_OK;
/** The page size of ListTensors. */
const PAGE_SIZE = 1000;
/** The most bytes of an operation without arrays: descriptors, ids, numbers. */
const MAX_OPERATION_BYTES = 1024;

/** Callbacks for warnings and diagnostics. */
export interface Listeners {
  /** Called with warning statuses. Default: `process.emitWarning`. */
  onWarning: (warning: ZdnnWarning) => void;
  /** Called with lines that the library prints. Default: `util.debuglog("nnpa")`, that is NODE_DEBUG=nnpa. */
  onDiagnostic: (line: Diagnostic) => void;
}

/** An open pipeline: how many are nested, their answers so far, and the list's options. */
interface Pipeline {
  depth: number;
  readonly results: OperationResult[];
  readonly options: CallOptions | undefined;
}

/** State that a session shares with its ztensors: ids, the open list, ids to free. */
export class Guest {
  readonly #name: string;
  readonly maxInlineBytes: number;
  readonly #queueBytes: number;
  readonly #living = new Map<bigint, WeakRef<CallTensor>>();
  readonly #finalizer = new FinalizationRegistry<bigint>((id) => {
    this.#living.delete(id);
    this.#dropped.push(id);
  });
  #dropped: bigint[] = [];
  #lastId = 0n;
  #queue: Call[] = [];
  #queuedBytes = 0;
  #open: Pipeline | undefined;
  #uncertain = false;
  #last: Promise<void> = Promise.resolve();

  constructor(
    readonly transport: Transport,
    session: SessionMessage,
    readonly listeners: Listeners,
  ) {
    this.#name = session.name;
    this.maxInlineBytes = Number(session.limits?.maxInlineBytes ?? 0n);
    this.#queueBytes = Number(session.limits?.maxMessageBytes ?? 0n) / 2;
  }

  /** The session's name: its only key, and therefore on the prototype, where no inspection shows it. */
  get name(): string {
    return this.#name;
  }

  /** Returns an id that no tensor of the session has had. */
  newId(): bigint {
    this.#lastId += 1n;
    return this.#lastId;
  }

  /** Tracks a tensor that now exists, and frees it when its object is dropped. */
  track(ztensor: CallTensor): void {
    this.#living.set(ztensor.id, new WeakRef(ztensor));
    this.#finalizer.register(ztensor, ztensor.id, ztensor);
  }

  /** Stops tracking a tensor that the server has freed; its structure stays. */
  untrack(ztensor: CallTensor): void {
    this.#living.delete(ztensor.id);
    this.#finalizer.unregister(ztensor);
    ztensor.release();
  }

  /** Runs work after every earlier call of the session. */
  async exclusive<T>(work: () => Promise<T>): Promise<T> {
    const before = this.#last;
    let release = (): void => undefined;
    this.#last = new Promise((resolve) => { release = resolve; });
    await before;
    try {
      return await work();
    } finally {
      release();
    }
  }

  /**
   * Runs the calls, or queues them while a pipeline is open.
   *
   * Throws ZdnnError for the first call that fails; later calls have not run.
   */
  async submit(calls: readonly Call[], options?: CallOptions): Promise<void> {
    if (this.#open === undefined) {
      await this.exclusive(() => this.#run(calls, options));
      return;
    }
    const size = calls.reduce((sum, call) => sum + MAX_OPERATION_BYTES + (call.bytes ?? 0), 0);
    const full = this.#queue.length > 0 && this.#queuedBytes + size > this.#queueBytes;
    const before = full ? this.flush() : undefined;
    this.#queue.push(...calls);
    this.#queuedBytes += size;
    await before;
  }

  /** Runs the queued calls and this call, and returns its answer. */
  async ask(call: Call, options?: CallOptions): Promise<OperationResult> {
    const answers: OperationResult[] = [];
    await this.submit([{ ...call, read: (result) => answers.push(result) }], options);
    await this.flush(options);
    const [answer] = answers;
    if (answer === undefined) {
      throw new NnpaError(`zdnn_${call.name}: not run, its pipeline ended before`);
    }
    return answer;
  }

  /** Runs the calls that an open pipeline has queued. */
  async flush(options?: CallOptions): Promise<void> {
    const calls = this.#queue;
    const pipeline = this.#open;
    this.#queue = [];
    this.#queuedBytes = 0;
    await this.exclusive(() => this.#run(calls, options ?? pipeline?.options, pipeline?.results));
  }

  /**
   * Opens a pipeline, in which calls queue until its end; returns the list for their answers.
   *
   * Pipelines may nest: the outer one runs, and has all answers.
   */
  begin(options: CallOptions | undefined): OperationResult[] {
    this.#open ??= { depth: 0, results: [], options };
    this.#open.depth += 1;
    return this.#open.results;
  }

  /** Closes a pipeline; runs its calls, or drops them. */
  async end(run: boolean): Promise<void> {
    const pipeline = this.#open;
    if (pipeline !== undefined && pipeline.depth > 1) {
      pipeline.depth -= 1;
      return;
    }
    if (!run) {
      invalidateAll(this.#queue, "its pipeline was left by an error");
      this.#queue = [];
    }
    const done = this.flush();
    this.#open = undefined; // later calls run by themselves
    await done;
  }

  /** Runs operations as they are, after dropped tensors have been freed. Call it in `exclusive`. */
  async execute(
    operations: readonly OperationInit[],
    options?: CallOptions,
  ): Promise<OperationResult[]> {
    if (this.#uncertain) {
      await this.#reconcile();
    }
    const freed = this.#dropped;
    this.#dropped = [];
    const frees = freed.map((id) => free({ tensor: { case: "id", value: id } }));
    const request = { session: this.name, operations: [...frees, ...operations] };
    try {
      const answer = await this.transport.unary(AcceleratorService.method.execute, request, options);
      return answer.results.slice(freed.length);
    } catch (error) {
      if (!(error instanceof NnpaError)) {
        throw error;
      }
      this.#dropped.unshift(...freed);
      const reason = error instanceof TransportError ? error.reason : "PROGRAM_CHECK";
      if (!NOTHING_HAS_RUN.has(reason)) {
        await this.markUncertain();
      } else if (reason === "TENSOR_NOT_FOUND" && freed.includes(missing(error))) {
        await this.#reconcile();
        return this.execute(operations, options);
      }
      throw renumbered(error, freed.length);
    }
  }

  /** Updates the call's ztensors from its result, and hands the result to `call.read`. */
  applyResult(call: Call, result: OperationResult): void {
    const valid = result.zdnnStatus === OK || isWarning(result.zdnnStatus);
    for (const info of result.outputs) {
      if (info.ztensor !== undefined) {
        call.tensors?.[info.operand]?.update(info.ztensor);
      }
    }
    for (const ztensor of call.creates ?? []) {
      if (valid) {
        this.track(ztensor);
      } else {
        ztensor.invalidate(`zdnn_${call.name} failed`);
      }
    }
    result.diagnostics.forEach(this.listeners.onDiagnostic);
    call.read?.(result);
  }

  /** Throws ZdnnError for an error status, reports a warning to the listener. */
  throwForStatus(call: Call, result: OperationResult, operationIndex?: number): void {
    const status = result.zdnnStatus;
    const violation = result.rangeViolation;
    if (isWarning(status)) {
      this.listeners.onWarning(new ZdnnWarning(status, call.name, violation));
    } else if (status !== OK) {
      const { refusal } = result;
      throw new ZdnnError(status, call.name, { refusal, violation, result, operationIndex });
    }
  }

  async #run(
    calls: readonly Call[],
    options?: CallOptions,
    collected?: OperationResult[],
  ): Promise<void> {
    if (!calls.length) {
      return;
    }
    let results: OperationResult[];
    try {
      results = await this.execute(calls.map((call) => call.operation), options);
    } catch (error) {
      invalidateAll(calls, "the call that makes it failed");
      throw error;
    }
    const pairs = results.flatMap((result, index) => {
      const call = calls[index];
      return call === undefined ? [] : [[call, result] as const];
    });
    pairs.forEach(([call, result]) => { this.applyResult(call, result); });
    invalidateAll(calls.slice(results.length), "the list of operations ended before");
    const before = collected?.length ?? 0;
    collected?.push(...results);
    pairs.forEach(([call, result], index) => {
      this.throwForStatus(call, result, collected === undefined ? undefined : before + index);
    });
  }

  /** Reconciles with the server after a lost answer, now or before the next call. */
  async markUncertain(): Promise<void> {
    this.#uncertain = true;
    try {
      await this.#reconcile();
    } catch (error) {
      if (!(error instanceof NnpaError)) {
        throw error;
      }
    }
  }

  async #reconcile(): Promise<void> {
    const present = new Map<bigint, ZtensorInfo>();
    for (const info of await this.listTensors()) {
      present.set(info.id, info);
    }
    this.#dropped = this.#dropped.filter((id) => present.has(id));
    for (const [id, living] of this.#living) {
      const structure = present.get(id)?.ztensor;
      if (structure !== undefined) {
        living.deref()?.update(structure);
      }
    }
    this.#uncertain = false;
  }

  /** Lists the tensors that the server holds for the session, by ascending id. */
  async listTensors(): Promise<ZtensorInfo[]> {
    const tensors: ZtensorInfo[] = [];
    let pageToken = "";
    do {
      const request = { session: this.name, pageSize: PAGE_SIZE, pageToken };
      const page = await this.transport.unary(AcceleratorService.method.listTensors, request);
      tensors.push(...page.tensors);
      pageToken = page.nextPageToken;
    } while (pageToken);
    return tensors;
  }
}

/** Returns the id of the tensor that does not exist. */
function missing(error: NnpaError): bigint {
  return error instanceof TransportError ? BigInt(error.metadata.tensor ?? "0") : 0n;
}

function invalidateAll(calls: readonly Call[], reason: string): void {
  calls.flatMap((call) => call.creates ?? []).forEach((ztensor) => { ztensor.invalidate(reason); });
}
