// SPDX-License-Identifier: Apache-2.0

/**
 * Kernel calls as requests, one or several calls in each.
 *
 * A request has each tensor once: later uses are `output_of` the first.
 */

import process from "node:process";

import type { MessageInitShape } from "@bufbuild/protobuf";

import { MliError } from "../errors.js";
import {
  Accumulator,
  type BuildOptionsSchema,
  Conversion,
  DebugLevel,
  type ElType,
  type KernelResult,
  type KernelSchema,
  MliService,
  MliStatus,
  RnnMode,
  type RnnOutActivation,
  Rounding,
  type TensorRefSchema,
} from "../gen/nnpa/mli/v1/mli_pb.js";
import { camel, word } from "../options.js";
import type { CallOptions, Transport } from "../transport.js";
import { empty, Tensor } from "./tensor.js";

/** Options of a build of the library; see the comments of `BuildOptions` in the wire contract. */
export interface BuildOptions {
  /** Default "convergent". */
  rounding?: "convergent" | "up";
  /** Default "ret_codes". */
  debugLevel?: "release" | "ret_codes" | "assert" | "debug" | "full";
  /** Default "exact". */
  accumulator?: "exact" | "hardware";
  /** Default "exact". */
  conversion?: "exact" | "library_2_0_2" | "library_2_0_ea";
}

/** Options of a kernel: build options of the library, limits of the call, and its output. */
export interface KernelOptions extends BuildOptions, CallOptions {
  /** Receives the result. Default: a new tensor. */
  out?: Tensor;
}

/** Options of a kernel whose caller chooses the fractional bits of the output. */
export interface ScaledOptions extends KernelOptions {
  /** Fractional bits of a created output. Default: those of `prevOut`, if there is one. */
  fracBits?: number;
}

/** `mli_rnn_cell_cfg`, which is `mli_lstm_cell_cfg` too. */
export interface RnnCellCfg {
  readonly mode: RnnMode;
  readonly act: RnnOutActivation;
  /** Intermediate results. Default: a new tensor. */
  readonly irTsr?: Tensor;
}

/** A session, which runs kernels at once, or a batch, which runs them when it ends. */
export type Runner = { readonly transport: Transport } | Batch;

type Kernel = NonNullable<MessageInitShape<typeof KernelSchema>["kernel"]>;
type Ref = MessageInitShape<typeof TensorRefSchema>;

/** One call: the kernel's name and its tensors by field; numbers of its configuration. */
interface Call {
  readonly kernel: string;
  readonly tensors: Readonly<Record<string, Tensor>>;
  readonly cfg?: RnnCellCfg;
}

/**
 * A call whose output is the field `output`, by default "out". An output that is left out is
 * `created` with the number of elements of the operand `sized`; the caller chooses its fractional
 * bits if `scaled`. The intermediate results of a cell have `gates` times that number.
 */
interface KernelCall extends Call {
  readonly output?: string;
  readonly created?: {
    readonly elType: ElType;
    readonly sized: string;
    readonly scaled?: boolean;
    readonly gates?: number;
  };
}

/** Encodes the calls of one request; remembers the first place of each tensor. */
class Encoder {
  readonly #places = new Map<Tensor, { kernelIndex: number; field: string }>();

  encode(kernelIndex: number, { kernel, tensors, cfg }: Call): MessageInitShape<typeof KernelSchema> {
    const value: Record<string, unknown> = {};
    for (const [field, tensor] of Object.entries(tensors)) {
      const ref = this.#ref(kernelIndex, field, tensor);
      if (cfg !== undefined && field === "cfg.ir_tsr") {
        value.cfg = { mode: cfg.mode, act: cfg.act, irTsr: ref };
      } else {
        value[camel(field)] = ref;
      }
    }
    return { kernel: { case: camel(kernel), value } as Kernel };
  }

  #ref(kernelIndex: number, field: string, tensor: Tensor): Ref {
    const place = this.#places.get(tensor);
    if (place === undefined) {
      this.#places.set(tensor, { kernelIndex, field });
      return { tensor: { case: "inline", value: tensor.message() } };
    }
    if (place.kernelIndex < kernelIndex) {
      return { tensor: { case: "outputOf", value: place } };
    }
    const shared = { place: { field: place.field }, tensor: tensor.message(false) };
    return { tensor: { case: "sameMemoryAs", value: shared } };
  }
}

function buildOptions(options: BuildOptions): MessageInitShape<typeof BuildOptionsSchema> {
  return {
    rounding: word("rounding", options.rounding, Rounding) ?? 0,
    debugLevel: word("debugLevel", options.debugLevel, DebugLevel) ?? 0,
    accumulator: word("accumulator", options.accumulator, Accumulator) ?? 0,
    conversion: word("conversion", options.conversion, Conversion) ?? 0,
  };
}

/** Returns the remarks on a call with status MLI_STATUS_OK. */
function remarks({ messages, accumulatorOverflow, refusal }: KernelResult): string[] {
  const overflow = "a partial sum left the accumulator, the result is undefined in MLI";
  return [
    ...messages,
    ...(accumulatorOverflow ? [overflow] : []),
    ...(refusal === undefined ? [] : [`nothing is written: ${refusal.text}`]),
  ];
}

/** Copies the outputs of a call, and emits its remarks; throws MliError for an error status. */
function finish({ kernel, tensors }: Call, result: KernelResult, index?: number): void {
  if (result.mliStatus !== MliStatus.OK) {
    throw new MliError(kernel, result, index);
  }
  for (const { field, tensor } of result.outputs) {
    if (tensor !== undefined) {
      tensors[field]?.update(tensor);
    }
  }
  for (const remark of remarks(result)) {
    process.emitWarning(`mli_${kernel}: ${remark}`, "MliWarning");
  }
}

async function send(
  transport: Transport,
  calls: readonly Call[],
  options: BuildOptions & CallOptions,
  isBatch: boolean,
): Promise<void> {
  const encoder = new Encoder();
  const kernels = calls.map((call, index) => encoder.encode(index, call));
  const request = { kernels, options: buildOptions(options) };
  const { results } = await transport.unary(MliService.method.runKernel, request, options);
  for (const [index, result] of results.entries()) {
    const call = calls[index];
    if (call !== undefined) {
      finish(call, result, isBatch ? index : undefined);
    }
  }
}

/** Kernels that run in one request; see `batch`. */
export class Batch {
  /** @internal */
  readonly calls: Call[] = [];
}

/**
 * Queues the kernels of `body`, and runs them in one request when it ends; returns the value of
 * `body`.
 *
 *     const out = await mli.batch(session, async (batch) => {
 *       const hidden = await mli.krnFullyConnectedFx16(batch, x, weights, bias, { fracBits: 11 });
 *       return mli.krnTanhFx16(batch, hidden);
 *     });
 *
 * Throws MliError for the first refused kernel, whose index is `kernelIndex`.
 */
export async function batch<T>(
  session: { readonly transport: Transport },
  body: (batch: Batch) => T | Promise<T>,
  options: BuildOptions & CallOptions = {},
): Promise<T> {
  const queued = new Batch();
  const value = await body(queued);
  if (queued.calls.length) {
    await send(session.transport, queued.calls, options, true);
  }
  return value;
}

/** Throws TypeError for an operand that is not a tensor. */
function requireTensor(field: string, operand: unknown): asserts operand is Tensor {
  if (!(operand instanceof Tensor)) {
    const kind = operand instanceof Object ? "an object" : String(operand);
    throw new TypeError(`${field}: ${kind}, expected an mli.Tensor; mli.tensor(array) makes one`);
  }
}

/** Returns the output that a caller has left out; undefined where it must be given. */
function outputOf({ tensors, cfg, created }: KernelCall, fracBits?: number): Tensor | undefined {
  if (created === undefined) {
    return undefined;
  }
  const bits = fracBits ?? tensors.prev_out?.fracBits;
  if (created.scaled && bits === undefined) {
    throw new TypeError("fracBits: undefined, expected a number, or an output in options.out");
  }
  const frames = cfg?.mode === RnnMode.RNN_BATCH_TO_BATCH ? (tensors.in?.shape[0] ?? 0) : 1;
  const count = (tensors[created.sized]?.room ?? 0) * frames;
  return empty(count, created.elType, bits === undefined ? {} : { fracBits: bits });
}

/** Returns the intermediate results of a recurrent cell, by field; none of another kernel. */
function resultsOf({ tensors, cfg, created }: KernelCall): Record<string, Tensor> {
  if (cfg === undefined || created === undefined) {
    return {};
  }
  const count = (created.gates ?? 0) * (tensors[created.sized]?.room ?? 0);
  const irTsr: unknown = cfg.irTsr ?? empty(count, created.elType);
  requireTensor("cfg.ir_tsr", irTsr);
  return { "cfg.ir_tsr": irTsr };
}

/** Runs or queues a call, and returns its output; throws TypeError where an operand is no tensor. */
export async function submit(on: Runner, call: KernelCall, options: ScaledOptions): Promise<Tensor> {
  for (const [field, tensor] of Object.entries(call.tensors)) {
    requireTensor(field, tensor);
  }
  const { output = "out" } = call;
  const out: unknown = options.out ?? outputOf(call, options.fracBits);
  requireTensor(output, out);
  const complete = { ...call, tensors: { ...call.tensors, [output]: out, ...resultsOf(call) } };
  if (!(on instanceof Batch)) {
    await send(on.transport, [complete], options, false);
    return out;
  }
  const own = Object.keys(options).filter((name) => !["out", "fracBits"].includes(name));
  if (own.length) {
    throw new TypeError(`${own.join(", ")}: given to a kernel in a batch, expected in the options of the batch`);
  }
  on.calls.push(complete);
  return out;
}
