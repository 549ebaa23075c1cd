// SPDX-License-Identifier: Apache-2.0

/**
 * Errors and warnings of this package.
 *
 *     NnpaError           everything that this package throws on purpose
 *       ZdnnError         the accelerator or the library answered with an error status
 *       ProgramCheck      the machine would have ended the program
 *       TransportError    the call did not reach the accelerator, or its answer got lost
 *     ZdnnWarning         emitted, not thrown: a warning status; outputs are valid
 */

import type { OperationResult, RangeViolation } from "./gen/nnpa/zdnn/v1/operation_pb.js";
import type { Refusal } from "./gen/nnpa/zdnn/v1/status_pb.js";
import { getStatusMessage, statusName } from "./status.js";

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
 * transform_origtensor; `operationIndex` the call's place in a list, 0-based, absent outside a list.
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
    const explained = violation === undefined ? "" : explainViolation(violation);
    super(`zdnn_${op}: ${getStatusMessage(status)}${explained}`);
    this.code = statusName(status);
    this.statusMessage = getStatusMessage(status);
  }
}

/** Values that fill an error message of the wire, by name. */
export type Metadata = Readonly<Record<string, string>>;

/**
 * The machine would have ended the program: operands contradict each other, or lack storage.
 *
 * `kind` is "data" (SIGILL on Linux), "access" (SIGSEGV), "operation" (SIGILL), or "assertion" for a
 * debug build of MLI (SIGABRT). `op` is the C function without its prefix; `field`, `value`, `limit`
 * and `constraint` say what is wrong; `precheckStatus` is the status that precheck would have given.
 * `operationIndex` is its place in a list, 0-based: operations before it have taken effect.
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
    const hint =
      status === undefined ? "" : ` With precheck the status would have been ${statusName(status)}.`;
    super(`${text}${hint}`);
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

/**
 * The call did not reach the accelerator, or its answer did not come back.
 *
 * `code` is the gRPC code's name, `reason` the ErrorReason's name or "", `metadata` what was dynamic
 * in the message, `advice` what to do. `cause` is what an aborted signal was aborted with.
 */
export class TransportError extends NnpaError {
  override name = "TransportError";
  readonly advice: string;

  constructor(
    readonly code: string,
    readonly text: string,
    readonly reason = "",
    readonly metadata: Metadata = {},
    options?: ErrorOptions,
  ) {
    const advice = ADVICE[reason] ?? CODE_ADVICE[code] ?? "Report this with its message.";
    super(`${reason ? `${code} / ${reason}` : code}: ${text} ${advice}`, options);
    this.advice = advice;
  }
}

/** What a user can do about each ErrorReason of nnpa.zdnn.v1. */
export const ADVICE: Readonly<Record<string, string>> = {
  SESSION_NOT_FOUND: "The session was closed or expired when idle: connect again.",
  SESSION_QUOTA_EXCEEDED: "Close sessions that are not needed, or try again later.",
  MACHINE_NOT_FOUND: "listMachines() lists the machines.",
  MACHINE_INVALID: "A custom machine can only lack what its model has.",
  LIBRARY_VERSION_UNKNOWN: "Choose one of the versions named.",
  FUNCTION_NOT_IN_LIBRARY: "Choose a later library version in connect().",
  FUNCTION_NOT_IMPLEMENTED: "Use a server that implements the function.",
  OPERATION_UNKNOWN: "The server is older than this client, or the operation is empty.",
  FIELD_UNSPECIFIED: "Set the field named.",
  FIELD_INVALID: "Change the field named to what is allowed.",
  TENSOR_NOT_FOUND: "The ztensor was freed: make a new one.",
  TENSOR_ID_IN_USE: "Leave the choice of ids to this client, or choose another.",
  TENSOR_QUOTA_EXCEEDED: "Free ztensors (freeZtensorBuffer) and try again.",
  DATA_SIZE_MISMATCH: "Give arrays of exactly the size that the descriptors call for.",
  MESSAGE_TOO_LARGE: "Send less per call; transformZtensor and transformOrigtensor stream.",
  STREAM_ORDER: "Send one header, then as many bytes as it announces.",
  PROGRAM_CHECK: "connect(target, { precheck: true }) gives a status instead.",
  PAGE_TOKEN_INVALID: "List again from the first page.",
  SERVER_DRAINING: "The server is shutting down: connect to another one.",
  TOKEN_INVALID: "Set ZDNN_TOKEN or connect(target, { token }).",
  MACHINE_NOT_ALLOWED: "Choose a machine that the token is for.",
  CALL_QUOTA_EXCEEDED: "Make fewer calls at a time, or try again later.",
  CACHE_MISS: "Send the sticks: the session's cache has forgotten them.",
  NETWORK_NOT_FOUND: "The network was destroyed, or ended with its session: load it anew.",
  NETWORK_NOT_READY: "Initialise the network; reports need one made from ONNX.",
  NETWORK_FAILED: "`nnpa network probe` shows at which sizes and inputs a model fails.",
  MODEL_INVALID: "`nnpa network analyze` tells what runs where; change the node named.",
  MODEL_EXISTS: "Publish under another name, or unload the model first.",
  MODEL_NOT_FOUND: "RepositoryIndex lists the models of the server.",
  MODEL_UNAVAILABLE: "Load the model, or wait until it is loaded.",
  MODEL_QUOTA_EXCEEDED: "Unload models, or unregister regions, that are not needed.",
  EXTENSION_NOT_OFFERED: "ServerMetadata lists the extensions that this server offers.",
  REGION_NOT_FOUND: "Register the region on the connection that uses it.",
  REGION_IN_USE: "Unregister the region first, or choose another name.",
  RESPONSE_TOO_LARGE: "Set the option named on the channel, and say so in the request.",
  FAULTS_NOT_ALLOWED: "Start the server with --allow-faults, or leave the rules out.",
  INTERNAL: "This is a defect of the server: report the correlation id.",
};

/** What a user can do about errors that gRPC itself raises. */
const CODE_ADVICE: Readonly<Record<string, string>> = {
  UNAVAILABLE: "Check that a server listens there (`nnpa-server --listen ...`), and TLS.",
  DEADLINE_EXCEEDED: "Raise connect(target, { timeout }), or send less per call.",
  CANCELLED: "The call was cancelled, or the server stopped: connect again.",
  RESOURCE_EXHAUSTED: "The message exceeds the server's --max-message: send less per call.",
  UNIMPLEMENTED: "The server does not speak this API, or is older than this client.",
};

/** Returns " output: 2 not numbers, first at [0, 0, 1, 3]: 0x7FFF from -1." and so on. */
export function explainViolation(violation: RangeViolation): string {
  return violation.operands
    .map((operand) => {
      const count = ` ${operand.operand}: ${operand.count} not numbers`;
      const first = operand.elements[0];
      if (first === undefined) {
        return `${count}.`;
      }
      const code = first.code.toString(16).toUpperCase().padStart(4, "0");
      const from = first.operandValues.length ? ` from ${first.operandValues.join(", ")}` : "";
      const padding = first.padding ? " (padding)" : "";
      return `${count}, first at [${first.index.join(", ")}]: 0x${code}${from}${padding}.`;
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
  return violation === undefined ? text : text + explainViolation(violation);
}

function optionalNumber(text: string | undefined): number | undefined {
  return text ? Number(text) : undefined;
}

/** Returns the error with operation indices lowered by `before`, the operations of the client itself. */
export function renumbered(error: NnpaError, before: number): NnpaError {
  if (!before || !(error instanceof TransportError || error instanceof ProgramCheck)) {
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
