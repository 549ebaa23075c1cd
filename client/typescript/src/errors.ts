// SPDX-License-Identifier: Apache-2.0

/**
 * Errors and warnings of this package.
 *
 *     NnpaError           everything that this package throws on purpose
 *       ZdnnError         the accelerator or the library answered with an error status
 *       ProgramCheck      the machine would have ended the program
 *       NetworkError      the client API of a hosted network refuses
 *       MliError          a kernel of embARC MLI answered with an error status
 *       TransportError    the call did not reach the accelerator, or its answer got lost
 *     ZdnnWarning         emitted, not thrown: a warning status; outputs are valid
 */

import type { DescEnum } from "@bufbuild/protobuf";

import { type KernelResult, MliStatusSchema, type Refusal as MliRefusal } from "./gen/nnpa/mli/v1/mli_pb.js";
import { type AiError, AiErrorCodeSchema, AiErrorTypeSchema } from "./gen/nnpa/network/v1/network_pb.js";
import type { OperationResult, RangeViolation } from "./gen/nnpa/zdnn/v1/operation_pb.js";
import { type Refusal, ZdnnStatus } from "./gen/nnpa/zdnn/v1/status_pb.js";
import { getStatusMessage, hexadecimal, statusName } from "./status.js";
import { ADVICE, CODE_ADVICE } from "./texts.gen.js";

/** Anything that this package throws on purpose. */
export class NnpaError extends Error {
  override name = "NnpaError";
}

/** Details of a ZdnnError beside its status and the function. */
export interface Explanation {
  refusal?: Refusal | undefined;
  violation?: RangeViolation | undefined;
  result?: OperationResult | undefined;
  operationIndex?: number | undefined;
}

/**
 * A zDNN status that is neither ZDNN_OK nor a warning.
 *
 * `status` is zDNN's number, `statusName` its name, `statusMessage` the library's text, `op` the C
 * function without its prefix. `refusal` has field, value, limit and constraint; `violation` has
 * the elements that are not numbers. `result` is the whole answer, with the data of a failed
 * transform_origtensor; `operationIndex` the call's index in a list, from 0, absent outside a list.
 */
export class ZdnnError extends NnpaError {
  override name = "ZdnnError";
  readonly statusName: string;
  readonly statusMessage: string;
  readonly refusal: Refusal | undefined;
  readonly violation: RangeViolation | undefined;
  readonly result: OperationResult | undefined;
  readonly operationIndex: number | undefined;

  constructor(
    readonly status: number,
    readonly op: string,
    explanation: Explanation = {},
  ) {
    super(sentence(status, op, explanation));
    this.statusName = statusName(status);
    this.statusMessage = getStatusMessage(status);
    this.refusal = explanation.refusal;
    this.violation = explanation.violation;
    this.result = explanation.result;
    this.operationIndex = explanation.operationIndex;
  }
}

/**
 * A warning status, such as ZDNN_ELEMENT_RANGE_VIOLATION: outputs are valid otherwise.
 *
 * Goes to `process.emitWarning`, or to the session's `onWarning`. Attributes as in `ZdnnError`;
 * `code` is the status's name, as Node.js wants it of warnings.
 */
export class ZdnnWarning extends Error {
  override name = "ZdnnWarning";
  readonly code: string;
  readonly statusMessage: string;

  constructor(
    readonly status: number,
    readonly op: string,
    readonly violation?: RangeViolation,
  ) {
    super(`zdnn_${op}: ${getStatusMessage(status)}${explainViolation(violation)}`);
    this.code = statusName(status);
    this.statusMessage = getStatusMessage(status);
  }
}

/** Values that fill an error message of the wire, by name. */
export type Metadata = Readonly<Record<string, string>>;

/**
 * The machine would have ended the program: operands contradict each other, or lack storage.
 *
 * `kind` is "data" (SIGILL on Linux), "access" (SIGSEGV), "operation" (SIGILL), or "assertion" for
 * a debug build of MLI (SIGABRT). `op` is the C function without its prefix; `field`, `value`,
 * `limit` and `constraint` describe the fault; `precheckStatus` is the status that precheck would
 * have given. `operationIndex` is its index in a list, from 0: earlier operations have taken
 * effect.
 */
export class ProgramCheck extends NnpaError {
  override name = "ProgramCheck";
  readonly kind: string;
  readonly op: string;
  readonly field: string;
  readonly value: string;
  readonly limit: string;
  readonly constraint: string;
  readonly precheckStatus: number | undefined;
  readonly operationIndex: number | undefined;

  constructor(
    readonly text: string,
    readonly metadata: Metadata,
  ) {
    const status = optionalNumber(metadata.precheck_status);
    let hint =
      status === undefined ? "" : ` With precheck the status would have been ${statusName(status)}.`;
    if (metadata.constraint === "pipeline_c11" && metadata.value === "0 bytes") {
      hint += " The ztensor has no buffer: it was freed, or never allocated.";
    }
    super(`${asSentence(text)}${hint}`);
    this.kind = metadata.kind ?? "";
    this.op = metadata.operation ?? "";
    this.field = metadata.field ?? "";
    this.value = metadata.value ?? "";
    this.limit = metadata.limit ?? "";
    this.constraint = metadata.constraint ?? "";
    this.precheckStatus = status;
    this.operationIndex = optionalNumber(metadata.operation_index);
  }
}

/** The client API of a hosted network refuses; `error` has type and code as ST numbers them. */
export class NetworkError extends NnpaError {
  override name = "NetworkError";

  constructor(readonly error: AiError) {
    const { type, code, text } = error;
    const names = `${enumName(AiErrorTypeSchema, type)} / ${enumName(AiErrorCodeSchema, code)}`;
    super(`${names} (${hexadecimal(type, 2)}, ${hexadecimal(code, 2)}): ${text}`);
  }
}

/** Returns the name that the contract has of a number, or the number. */
export function enumName(schema: DescEnum, number: number): string {
  return schema.values.find((value) => value.number === number)?.name ?? String(number);
}

/**
 * A status of embARC MLI that is not MLI_STATUS_OK; nothing was written.
 *
 * `status` is the number, `statusName` the library's name of it, `kernel` the function without
 * `mli_`, `refusal` has field, value, limit and constraint. `kernelIndex` is the call's index in a
 * batch, from 0: earlier calls have written their outputs, later calls have not run.
 */
export class MliError extends NnpaError {
  override name = "MliError";
  readonly status: number;
  readonly statusName: string;
  readonly refusal: MliRefusal | undefined;

  constructor(
    readonly kernel: string,
    result: KernelResult,
    readonly kernelIndex?: number,
  ) {
    const { mliStatus, refusal } = result;
    const statusName = enumName(MliStatusSchema, mliStatus);
    const text = refusal?.text ?? "";
    const place = kernelIndex === undefined ? "" : `kernel ${kernelIndex}, `;
    super(`${place}mli_${kernel}: ${text === "" ? statusName : text}`);
    this.status = mliStatus;
    this.statusName = statusName;
    this.refusal = refusal;
  }
}

/**
 * The call did not reach the accelerator, or its answer did not come back.
 *
 * `code` is the gRPC code's name, `reason` the ErrorReason's name or "", `metadata` the values in
 * the message by name, `advice` the remedy. `cause` is the reason of an aborted signal.
 */
export class TransportError extends NnpaError {
  override name = "TransportError";
  readonly advice: string;
  /** Milliseconds after which the server asks to try again; undefined if it does not ask. */
  retryDelay: number | undefined;

  constructor(
    readonly code: string,
    readonly text: string,
    readonly reason = "",
    readonly metadata: Metadata = {},
    options: ErrorOptions & { advice?: string } = {},
  ) {
    const usual = ADVICE[reason] ?? CODE_ADVICE[code] ?? "Report this with its message.";
    const advice = options.advice ?? usual;
    super(`${reason ? `${code} / ${reason}` : code}: ${asSentence(text)} ${advice}`, options);
    this.advice = advice;
  }
}

/**
 * The server of the session is gone, or the connection to it broke: connect again. Its tensors are
 * lost with the server. gRPC or a proxy chose the `code`.
 */
export class SessionLostError extends TransportError {
  override name = "SessionLostError";

  constructor(code: string, text: string) {
    super(code, text);
    const advice = "Connect again: what the session held is lost with its server.";
    this.message = `${code}: the server of this session is gone: ${asSentence(text)} ${advice}`;
  }
}

/** Returns " output: 2 not numbers, first at [0, 0, 1, 3]: 0x7FFF from -1." and so on. */
function explainViolation(violation: RangeViolation | undefined): string {
  return (violation?.operands ?? [])
    .map((operand) => {
      const count = ` ${operand.operand}: ${operand.count} not numbers`;
      const first = operand.elements[0];
      if (first === undefined) {
        return `${count}.`;
      }
      const code = hexadecimal(first.code, 4);
      const from = first.operandValues.length ? ` from ${first.operandValues.join(", ")}` : "";
      const padding = first.padding ? " (padding)" : "";
      return `${count}, first at [${first.index.join(", ")}]: ${code}${from}${padding}.`;
    })
    .join("");
}

function sentence(status: number, op: string, explanation: Explanation): string {
  const { refusal, violation, operationIndex } = explanation;
  const position = operationIndex === undefined ? "" : `operation ${operationIndex}, `;
  const serverText = refusal?.text ?? "";
  let text = `${position}zdnn_${op}: ${serverText || getStatusMessage(status)}`;
  if (refusal !== undefined && !serverText) {
    const { field, value, limit, constraint } = refusal;
    text += ` ${field} is ${value}, allowed: ${limit} (${constraint}).`;
  }
  text += explainViolation(violation);
  if (op === "transform_origtensor" && status === ZdnnStatus.ZDNN_CONVERT_FAILURE) {
    text += " transformOrigtensor(ztensor, out) writes NaN for them to out before it throws.";
  }
  return text;
}

/** Returns a text with a full stop at its end. */
function asSentence(text: string): string {
  return /[.!?]$/.test(text) ? text : `${text}.`;
}

function optionalNumber(text: string | undefined): number | undefined {
  return text ? Number(text) : undefined;
}

/** Returns the error with operation indices lowered by `before`, the operations of the client itself. */
export function renumbered(error: NnpaError, before: number): NnpaError {
  const isLost = error instanceof SessionLostError;
  const hasIndices = error instanceof TransportError || error instanceof ProgramCheck;
  if (!before || isLost || !hasIndices) {
    return error;
  }
  const shift = (text: string): string =>
    text.replace(/operations\[(\d+)\]/g, (_, index) => `operations[${Number(index) - before}]`);
  const metadata: Record<string, string> = {};
  for (const [key, value] of Object.entries(error.metadata)) {
    metadata[key] = key === "operation_index" ? String(Number(value) - before) : shift(value);
  }
  if (error instanceof ProgramCheck) {
    return new ProgramCheck(shift(error.text), metadata);
  }
  const options = error.cause === undefined ? undefined : { cause: error.cause };
  return new TransportError(error.code, shift(error.text), error.reason, metadata, options);
}
