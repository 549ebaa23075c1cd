// SPDX-License-Identifier: Apache-2.0

/** Options of a session, from JavaScript's words to the wire's. */

import { create, type MessageInitShape } from "@bufbuild/protobuf";

import {
  Accumulate,
  AcceleratorService,
  LogLevel,
  type MachineSpecSchema,
  Numerics,
  ProgramCheckAction,
  type Session as SessionMessage,
  SessionSchema,
} from "./gen/nnpa/zdnn/v1/accelerator_pb.js";
import type { CallOptions, Transport } from "./transport.js";

/** A custom machine: a model, and changes to it. */
export type MachineSpec = MessageInitShape<typeof MachineSpecSchema>;

/** Options that an open session can change; see the comments of `Session` in the wire contract. */
export interface ChangeableOptions {
  /** A name or alias of `listMachines` (default "telum2"), or a custom machine. */
  machine?: string | MachineSpec;
  /** Verify operands before the machine sees them. Default false. */
  precheck?: boolean;
  /** Status that triggers a diagnosis: ZDNN_STATUS_DIAG. */
  statusDiag?: number;
  /** The effect of a program check. Default "abort". */
  programCheck?: "abort" | "status";
  /** The level of the log lines that come back: ZDNN_LOGLEVEL. */
  logLevel?: "off" | "fatal" | "error" | "warn" | "info" | "debug" | "trace";
  /** Which modules log: ZDNN_LOGMODULE. */
  logModule?: string;
  /** How results are computed. Default "exact". */
  numerics?: "exact" | "jitter";
  /** Seed of "jitter". */
  jitterSeed?: bigint;
  /** How sums of products are computed. Default "fp32". */
  accumulate?: "fp32" | "fp64";
}

/** Options of a session. */
export interface SessionOptions extends ChangeableOptions {
  /** A version of zDNN. Default "1.2.0". */
  library?: string;
}

/**
 * Returns the session message that options ask for, and the fields that they set. A machine's name
 * is looked up at the server. Throws TypeError for an unknown word.
 */
export async function sessionOptions(
  transport: Transport,
  chosen: SessionOptions,
  options?: CallOptions,
): Promise<{ session: SessionMessage; fields: string[] }> {
  const { machine } = chosen;
  const programCheck = ProgramCheckAction;
  const set: Record<string, unknown> = {
    machine_spec: typeof machine === "string" ? await named(transport, machine, options) : machine,
    library_version: chosen.library,
    precheck: chosen.precheck,
    status_diag: chosen.statusDiag,
    program_check_action: word("programCheck", chosen.programCheck, programCheck),
    log_level: word("logLevel", chosen.logLevel, LogLevel),
    log_module: chosen.logModule,
    numerics: word("numerics", chosen.numerics, Numerics),
    jitter_seed: chosen.jitterSeed,
    accumulate: word("accumulate", chosen.accumulate, Accumulate),
  };
  const fields = Object.keys(set).filter((field) => set[field] !== undefined);
  const init = Object.fromEntries(fields.map((field) => [camel(field), set[field]]));
  return { session: create(SessionSchema, init), fields };
}

/** Returns "machineSpec" of "machine_spec". */
export function camel(field: string): string {
  return field.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase());
}

async function named(
  transport: Transport,
  machine: string,
  options?: CallOptions,
): Promise<MachineSpec> {
  const request = { name: `machines/${machine}` };
  const answer = await transport.unary(AcceleratorService.method.getMachine, request, options);
  return { model: answer.model };
}

/** Returns the number of an option's word; throws TypeError for an unknown word. */
export function word(
  option: string,
  chosen: unknown,
  numbers: Readonly<Record<string, string | number>>,
): number | undefined {
  if (chosen === undefined) {
    return undefined;
  }
  const number = typeof chosen === "string" ? numbers[chosen.toUpperCase()] : undefined;
  if (typeof number !== "number" || number === 0) {
    const words = Object.keys(numbers).filter((name) => Number(numbers[name]) > 0);
    const expected = words.join(", ").toLowerCase();
    throw new TypeError(`${option}: ${JSON.stringify(chosen)}, expected one of ${expected}`);
  }
  return number;
}
