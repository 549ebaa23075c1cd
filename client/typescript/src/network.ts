// SPDX-License-Identifier: Apache-2.0

/** Hosted networks: load an ONNX model, and run it over arrays with the model's own names. */

import { readFile } from "node:fs/promises";
import { inspect } from "node:util";

import {
  create,
  type DescMessage,
  type DescMethodUnary,
  type MessageInitShape,
  type MessageShape,
} from "@bufbuild/protobuf";

import { shown } from "./display.js";
import { NetworkError, NnpaError, TransportError, ZdnnWarning } from "./errors.js";
import {
  AiErrorSchema,
  type CreateNetworkHeaderSchema,
  type Network as NetworkMessage,
  type NetworkReport,
  NetworkService,
  type NodeViolation,
  Overflow,
} from "./gen/nnpa/network/v1/network_pb.js";
import { Placement } from "./gen/nnpa/network/v1/program_pb.js";
import type { Guest } from "./guest.js";
import {
  decoded,
  describePort,
  encoded,
  type NetworkArray,
  type NetworkData,
  type Port,
  portOf,
} from "./network_arrays.js";
import { word } from "./options.js";
import { parts } from "./transfer.js";
import type { CallOptions } from "./transport.js";

type Header = MessageInitShape<typeof CreateNetworkHeaderSchema>;

/** An ONNX model: the path or URL of its file, the file's bytes, or a published model's name. */
export type Model = string | URL | Uint8Array | { readonly published: string };

/** An input: its elements, with their shape where the model leaves more than one dim free. */
export type NetworkInput = NetworkData | NetworkArray;

/** Options of compiling a model; see the comments of `CreateOptions` in the wire contract. */
export interface LoadOptions extends CallOptions {
  /** The C name. Default: a new name in the session. */
  cName?: string;
  /** How much goes to the accelerator. Default "compiler". */
  placement?: "compiler" | "all";
  /** Refuse a model with a node on the host. */
  strictPlacement?: boolean;
  /** Run integer products on the accelerator, which rounds. */
  offloadInteger?: boolean;
  /** The result of values beyond DLFLOAT16. Default "saturate". */
  overflow?: "saturate" | "ninf";
  /** Offers the model under this name to every session of the server. */
  publishAs?: string;
}

/** The result of one run: outputs by name, and its diagnostics. */
export interface Inference {
  readonly outputs: Readonly<Record<string, NetworkArray>>;
  /** Values that are not numbers, which the accelerator used or stored. */
  readonly violations: readonly NodeViolation[];
  /** NaN elements of each output. */
  readonly nans: Readonly<Record<string, bigint>>;
  /** Calls of each zDNN function. */
  readonly calls: Readonly<Record<string, bigint>>;
}

/** One run of `Network.probe`: machine, inputs and findings. */
export interface ProbeRun {
  readonly machine: string;
  /** Values of free dims, by their names. */
  readonly sizes: Readonly<Record<string, number>>;
  /** The kind of the inputs: "zeros", "constants", "all masked" or "extremes". */
  readonly inputs: string;
  /** NaN elements of all outputs. */
  readonly nans: number;
  /** Calls with a range violation. */
  readonly violations: number;
  /** The node of the first violation, "" without one. */
  readonly first: string;
  /** Why the run could not take place, "" if it did. */
  readonly limit: string;
}

/**
 * A model on the accelerator, ready to run: of `session.load`.
 *
 * `close`, the end of `await using` or of the session destroys it.
 */
export class Network {
  readonly #guest: Guest;
  readonly #handle: string;
  #closed = false;
  /** The C name. */
  readonly cName: string;
  /** The machine that it runs on, for example "telum2". */
  readonly machine: string;
  /** 32 hex digits of the hash of the model. */
  readonly modelSignature: string;
  /** Inputs, in the model's order. */
  readonly inputs: readonly Port[];
  /** Outputs, in the model's order. */
  readonly outputs: readonly Port[];

  /** @internal */
  constructor(guest: Guest, message: NetworkMessage) {
    this.#guest = guest;
    this.#handle = message.name;
    this.cName = message.cName;
    this.machine = message.machine;
    this.modelSignature = message.modelSignature;
    this.inputs = message.inputs.map(portOf);
    this.outputs = message.outputs.map(portOf);
  }

  /**
   * Runs once over an array for each input, by name; returns the outputs by name. The first range
   * violation is a ZdnnWarning. Throws TypeError for a wrong name, type or shape, before the wire.
   */
  async run(
    inputs: Readonly<Record<string, NetworkInput>>,
    options?: CallOptions,
  ): Promise<Readonly<Record<string, NetworkArray>>> {
    const { outputs, violations } = await this.infer(inputs, options);
    for (const { zdnnStatus, function: op, node } of violations.slice(0, 1)) {
      this.#guest.listeners.onWarning(new ZdnnWarning(zdnnStatus, `${op} (node ${node})`));
    }
    return outputs;
  }

  /** Runs once and returns outputs with diagnostics, without warnings. */
  async infer(
    inputs: Readonly<Record<string, NetworkInput>>,
    options?: CallOptions,
  ): Promise<Inference> {
    const request = { ...this.#names(), inputs: this.#arrays(inputs) };
    const answer = await this.#call(NetworkService.method.inferNetwork, request, options);
    const { violations, nans, calls } = answer;
    const outputs = answer.outputs.map((output) => [output.name, decoded(output)] as const);
    return { outputs: Object.fromEntries(outputs), violations, nans, calls };
  }

  /** Returns the network's report: where each node was placed, and why one is on the host. */
  async report(options?: CallOptions): Promise<NetworkReport> {
    const { getNetworkInfo } = NetworkService.method;
    const { report } = await this.#call(getNetworkInfo, this.#names(), options);
    if (report === undefined) {
      throw await this.#refusal(options);
    }
    return shown(report, describeReport);
  }

  /**
   * Runs the model at edge sizes, over degenerate inputs, on machines or on both Telums, and says
   * where it gives NaN, violates the range or meets a limit. Without sizes, free dims are those
   * around 1, 32, 64 and 128.
   */
  async probe(
    { sizes = [], machines = [] }: { sizes?: number[]; machines?: string[] } = {},
    options?: CallOptions,
  ): Promise<readonly ProbeRun[]> {
    const request = { ...this.#names(), sizes, machines };
    const { json } = await this.#call(NetworkService.method.probeNetwork, request, options);
    return JSON.parse(json) as ProbeRun[];
  }

  /** Destroys the network. May be repeated, and after the end of its session. */
  async close(options?: CallOptions): Promise<void> {
    if (this.#closed) {
      return;
    }
    const names = this.#names();
    this.#closed = true;
    try {
      await this.#call(NetworkService.method.destroyNetwork, names, options);
    } catch (error) {
      if (!(error instanceof TransportError)) {
        throw error;
      }
    }
  }

  /** Closes the network at the end of `await using`. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  /** Returns name, machine, inputs and outputs, in one line. */
  toString(): string {
    const [inputs, outputs] = [this.inputs, this.outputs].map((ports) =>
      ports.map(describePort).join(", "),
    );
    return `Network(${this.cName} on ${this.machine}: ${inputs ?? ""} -> ${outputs ?? ""})`;
  }

  /** Shows the same in a REPL and in console.log. */
  [inspect.custom](): string {
    return this.toString();
  }

  /** Binds the model's own weights, and activations of the size that the report asks for. @internal */
  async initialise(options?: CallOptions): Promise<void> {
    const { activations } = await this.report(options);
    const memory = { channels: activations?.channels ?? 0, data: new Uint8Array() };
    const request = { ...this.#names(), params: { params: {}, activations: memory } };
    const { ok } = await this.#call(NetworkService.method.initNetwork, request, options);
    if (!ok) {
      throw await this.#refusal(options);
    }
  }

  /** Returns the first error of the network, and clears it. */
  async #refusal(options?: CallOptions): Promise<NetworkError> {
    const { getNetworkError } = NetworkService.method;
    const { error } = await this.#call(getNetworkError, this.#names(), options);
    return new NetworkError(error ?? create(AiErrorSchema));
  }

  /** Makes a call after every earlier one of the session. */
  #call<I extends DescMessage, O extends DescMessage>(
    method: DescMethodUnary<I, O>,
    request: MessageInitShape<I>,
    options?: CallOptions,
  ): Promise<MessageShape<O>> {
    return this.#guest.exclusive(() => this.#guest.transport.unary(method, request, options));
  }

  /** Returns the fields that name the network; throws NnpaError for a closed network. */
  #names(): { session: string; network: string } {
    if (this.#closed) {
      throw new NnpaError(`network ${this.cName}: is closed, session.load loads it again`);
    }
    return { session: this.#guest.name, network: this.#handle };
  }

  #arrays(inputs: Readonly<Record<string, NetworkInput>>): ReturnType<typeof encoded>[] {
    const expected = this.inputs.map(({ name }) => name);
    const unknown = Object.keys(inputs).filter((name) => !expected.includes(name));
    if (unknown.length) {
      throw new TypeError(`inputs: got ${unknown.join(", ")}, expected ${expected.join(", ")}`);
    }
    return this.inputs.map((port) => {
      const value = Object.hasOwn(inputs, port.name) ? inputs[port.name] : undefined;
      if (value === undefined) {
        throw new TypeError(`input ${port.name} is missing, expected ${describePort(port)}`);
      }
      return encoded(port, value);
    });
  }
}

/** Returns how many nodes are where, with the operators on the host. */
function describeReport({ modelName, machine, nodes }: NetworkReport): string {
  const on = (device: string): string[] =>
    nodes.filter((node) => node.device === device).map(({ opType }) => opType);
  const host = on("host");
  const operators = host.length ? ` (${[...new Set(host)].join(", ")})` : "";
  const places = [
    `${on("accelerator").length} nodes on the accelerator`,
    `${host.length} on the host${operators}`,
    `${on("folded").length} folded`,
  ];
  return `NetworkReport(${modelName} on ${machine}: ${places.join(", ")})`;
}

function headerOf(guest: Guest, source: Header["source"], chosen: LoadOptions): Header {
  const { cName = `network_${guest.newId()}`, publishAs = "" } = chosen;
  const { strictPlacement = false, offloadInteger = false } = chosen;
  const placement = word("placement", chosen.placement, Placement) ?? Placement.UNSPECIFIED;
  const overflow = word("overflow", chosen.overflow, Overflow) ?? Overflow.UNSPECIFIED;
  const options = { strictPlacement, offloadInteger, placement, overflow };
  return { session: guest.name, cName, source, options, publishAs };
}

/** Creates and initialises a network; see `Session.load`. */
export async function load(
  guest: Guest,
  model: Model,
  options: LoadOptions = {},
): Promise<Network> {
  let bytes: Uint8Array = new Uint8Array();
  let source: Header["source"];
  if (model instanceof Object && "published" in model) {
    source = { case: "published", value: model.published };
  } else {
    bytes = model instanceof Uint8Array ? model : await readFile(model);
    source = { case: "onnxBytes", value: BigInt(bytes.byteLength) };
  }
  const requests = parts(headerOf(guest, source, options), [bytes]);
  const network = await guest.exclusive(async () => {
    const { createNetwork } = NetworkService.method;
    const answer = await guest.transport.clientStream(createNetwork, requests, options);
    if (answer.network === undefined) {
      throw new NetworkError(answer.error ?? create(AiErrorSchema));
    }
    return new Network(guest, answer.network);
  });
  try {
    await network.initialise(options);
  } catch (error) {
    await network.close();
    throw error;
  }
  return network;
}
