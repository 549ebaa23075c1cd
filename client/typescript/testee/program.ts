// SPDX-License-Identifier: Apache-2.0

/** One vector: a session, the ztensors that the vector has named, and its calls of verbs. */

import { fromJson, type JsonValue } from "@bufbuild/protobuf";
import {
  connect,
  FpFlags,
  ProgramCheck,
  type Session,
  TransportError,
  type UserData,
  zdnn,
  ZdnnError,
  type ZdnnWarning,
  Ztensor,
} from "nnpa";
import { MachineSpecSchema, OperationSchema, type RangeViolation } from "nnpa/zdnn/v1";

import { descriptor, type Json } from "./locals.js";
import { fp32Word, littleEndian, wordsOf } from "./words.js";

const WRITTEN = ["output", "output_a", "output_b", "hn_output", "cf_output", "dest", "ztensor"];
const POINTERS = ["buffer_misaligned", "save_area_misaligned", "work_area_misaligned"];
const PRE_BYTES = new Map<number, number>([[zdnn.INT8, 1], [zdnn.FP16, 2], [zdnn.BFLOAT, 2]]);
const CELL_BYTES = new Map<number, number>([
  [zdnn.ZDNN_BINARY_INT8, 1],
  [zdnn.ZDNN_BINARY_INT32, 4],
]);

type Verb = (...values: unknown[]) => unknown;
/** A verb's parameters in C order, by C's names. */
type Arguments = Map<string, unknown>;

function camel(name: string): string {
  return name.replace(/_([a-z0-9])/g, (_, letter: string) => letter.toUpperCase());
}

/** Returns the names of a verb's parameters in C order: the fields of its message. */
function parameters(name: string): string[] {
  const arm = OperationSchema.fields.find((field) => field.name === name);
  return (arm?.message?.fields ?? []).map((field) => field.name);
}

/** Runs one vector in a session of its own. */
export async function runVector(target: string, line: Json): Promise<Json> {
  const warnings: ZdnnWarning[] = [];
  await using session = await connect(target, {
    machine: spec(line),
    library: String(line.library),
    precheck: Boolean(line.precheck),
    onWarning: (warning) => { warnings.push(warning); },
  });
  const program = new Program(session, warnings);
  for (const [id, tensor] of Object.entries(line.tensors as Record<string, Json>)) {
    await program.put(Number(id), tensor);
  }
  const steps: Json[] = [];
  for (const step of line.steps as Json[]) {
    steps.push(await program.step(step));
  }
  return { steps };
}

function spec(line: Json): ReturnType<typeof fromJson<typeof MachineSpecSchema>> {
  return fromJson(MachineSpecSchema, line.machine_spec as JsonValue);
}

class Program {
  readonly #named = new Map<number, Ztensor>();

  constructor(
    readonly session: Session,
    readonly warnings: ZdnnWarning[],
  ) {}

  async put(id: number, line: Json): Promise<void> {
    const structure = {
      preTransformedDesc: descriptor(line.pre_transformed_desc),
      transformedDesc: descriptor(line.transformed_desc),
      bufferSize: BigInt(line.buffer_size as number | string),
      isTransformed: Boolean(line.is_transformed),
      recScale: Number(line.rec_scale),
      offset: Number(line.offset),
    };
    const sticks = typeof line.memory === "string" ? littleEndian(line.memory) : undefined;
    this.#named.set(id, await this.session.putZtensor(structure, sticks));
  }

  /** Makes one call, or moves the guest, and returns what can be observed. */
  async step(line: Json): Promise<Json> {
    if ("machine_spec" in line) {
      await this.session.update({ machine: spec(line) });
      return {};
    }
    const operation = line.operation as Record<string, Json>;
    const name = Object.keys(operation).find((key) => !POINTERS.includes(key)) ?? "";
    const fields = operation[name] ?? {};
    const args = this.#arguments(name, fields, (line.data as string[] | undefined) ?? []);
    const options = Object.fromEntries(POINTERS.map((key) => [camel(key), operation[key] ?? false]));
    const answer = await this.#answer(name, args, options);
    if ("error" in answer) {
      return answer;
    }
    this.#nameNew(fields, args);
    const outputs = [...args].flatMap(([key, argument]) =>
      WRITTEN.includes(key) && argument instanceof Ztensor ? [stateOf(key, argument)] : [],
    );
    const flagged = args.get("ztensor") ?? args.get("dest");
    const converts = name.startsWith("transform_") || name === "reshape_ztensor";
    return {
      ...answer,
      outputs: Object.fromEntries(await Promise.all(outputs)),
      ...(converts && flagged instanceof Ztensor ? { fp_flags: flags(flagged.flags) } : {}),
    };
  }

  #arguments(name: string, fields: Json, data: string[]): Arguments {
    const args: Arguments = new Map();
    for (const key of parameters(name)) {
      args.set(key, this.#argument(fields[key]));
    }
    if (args.has("data")) {
      const arrays = data.map(littleEndian);
      args.set("data", name === "transform_ztensor" ? arrays : (arrays[0] ?? new Uint8Array()));
    }
    return args;
  }

  #argument(field: unknown): unknown {
    if (typeof field === "string") {
      return Number(field);
    }
    if (typeof field !== "object" || field === null || Array.isArray(field)) {
      return field;
    }
    if ("id" in field) {
      return this.#named.get(field.id as number);
    }
    return "new_id" in field ? undefined : descriptor(field);
  }

  /** Calls the verb; outputs that it creates go among the arguments. */
  async #answer(name: string, args: Arguments, options: Json): Promise<Json> {
    this.warnings.length = 0;
    try {
      const returned = await this.#call(name, args, options);
      const [warning] = this.warnings;
      const warned = warning && { status: warning.status, ...violated(warning.violation) };
      return { ...described(name, returned, args), ...warned };
    } catch (error) {
      if (error instanceof ZdnnError) {
        return refused(error, args);
      }
      if (error instanceof TransportError) {
        return { error: error.reason };
      }
      if (error instanceof ProgramCheck) {
        return { error: "PROGRAM_CHECK" };
      }
      throw error;
    }
  }

  async #call(name: string, args: Arguments, options: Json): Promise<unknown> {
    const verb = (zdnn as unknown as Record<string, Verb>)[camel(name)];
    if (verb === undefined) {
      throw new Error(`${name}: not a verb of zDNN`);
    }
    const values = [...args.values()];
    if (name.startsWith("init_")) {
      const ztensor = await verb(this.session, ...values.slice(1));
      args.set("ztensor", ztensor);
      return ztensor;
    }
    if (!values.some((element) => element instanceof Ztensor)) {
      return verb(this.session, ...values, options);
    }
    if (name === "transform_origtensor") {
      values.push(undefined);
    }
    const returned = await verb(...values, options);
    const elements: unknown[] = Array.isArray(returned) ? returned : [returned];
    const ztensors = elements.filter((element) => element instanceof Ztensor);
    const outputs = [...args.keys()].filter((key) => WRITTEN.includes(key));
    outputs.forEach((key, index) => args.set(key, args.get(key) ?? ztensors[index]));
    return returned;
  }

  #nameNew(fields: Json, args: Arguments): void {
    for (const [key, field] of Object.entries(fields)) {
      const newId = (field as Json | null)?.new_id;
      const id = typeof field === "number" && key === "ztensor" ? field : newId;
      const ztensor = args.get(key);
      if (id !== undefined && ztensor instanceof Ztensor) {
        this.#named.set(Number(id), ztensor);
      }
    }
  }
}

/** Returns what a call that came back says. */
function described(name: string, returned: unknown, args: Arguments): Json {
  if (typeof returned === "boolean" || typeof returned === "number") {
    return { value: returned };
  }
  if (name === "getrange_ztensor") {
    return { status: 0, range: (returned as number[]).map(fp32Word) };
  }
  if (name === "transform_origtensor") {
    return { status: 0, data_out: userWords(returned as UserData, args) };
  }
  return { status: 0 };
}

function userWords(data: UserData, args: Arguments): string {
  const { type } = (args.get("ztensor") as Ztensor).preTransformedDesc;
  const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  return wordsOf(bytes, PRE_BYTES.get(type ?? -1) ?? 4);
}

function refused(error: ZdnnError, args: Arguments): Json {
  const { status, refusal, violation, result } = error;
  const data = result?.value.case === "data" ? result.value.value : undefined;
  return {
    status,
    ...violated(violation),
    ...(refusal && { refusal: refusal.constraint }),
    ...(data && { data_out: userWords(data, args) }),
  };
}

function violated(violation: RangeViolation | undefined): Json {
  if (violation === undefined) {
    return {};
  }
  const operands = violation.operands.map((operand) => {
    const elements = operand.elements.map((element) => [
      ...element.index,
      element.code.toString(16).toUpperCase().padStart(4, "0"),
      ...element.operandValues.map((value) => (Number.isFinite(value) ? value : String(value))),
    ]);
    return [operand.operand, elements] as const;
  });
  return { violation: Object.fromEntries(operands) };
}

function flags(sum: number): string[] {
  const names = { INVALID: FpFlags.INVALID, OVERFLOW: FpFlags.OVERFLOW, UNDERFLOW: FpFlags.UNDERFLOW };
  return Object.entries(names).flatMap(([name, bit]) => (sum & bit ? [name] : []));
}

/** Returns what the program sees of a ztensor. */
async function stateOf(operand: string, ztensor: Ztensor): Promise<readonly [string, Json]> {
  return [operand, await state(ztensor)];
}

async function state(ztensor: Ztensor): Promise<Json> {
  const { isTransformed, bufferSize, recScale, offset, transformedDesc, structure } = ztensor;
  const seen = { is_transformed: isTransformed, buffer_size: bufferSize, rec_scale: recScale, offset };
  if (!ztensor.id || structure.nullBuffer) {
    return seen;
  }
  const width = CELL_BYTES.get(transformedDesc.type ?? -1) ?? 2;
  return { ...seen, memory: wordsOf(await ztensor.readSticks(), width) };
}
