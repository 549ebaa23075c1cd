// SPDX-License-Identifier: Apache-2.0

/** nnpa: IBM's NNPA accelerator and zDNN, emulated; this is the TypeScript client. */

export type { OperationInit } from "./call.js";
export { connect, type ConnectOptions, listMachines, type ReachOptions } from "./connection.js";
export type { Credentials } from "./config.js";
export type { UserArray, UserData } from "./elements.js";
export {
  MliError,
  NetworkError,
  NnpaError,
  ProgramCheck,
  SessionLostError,
  TransportError,
  ZdnnError,
  ZdnnWarning,
} from "./errors.js";
export { FpFlags } from "./gen/nnpa/zdnn/v1/operation_pb.js";
export * as mli from "./mli.js";
export type {
  Inference,
  LoadOptions,
  Model,
  Network,
  NetworkInput,
  ProbeRun,
} from "./network.js";
export type { NetworkArray, NetworkData, Port } from "./network_arrays.js";
export type { ChangeableOptions, MachineSpec, SessionOptions } from "./options.js";
export { Session, type SessionListeners, type ZtensorOptions } from "./session.js";
export { type CallOptions, GrpcTransport, type Transport } from "./transport.js";
export type { VerbOptions } from "./verb.js";
export * as zdnn from "./zdnn.js";
export type { WaitOptions } from "./waiting.js";
export { Ztensor } from "./ztensor.js";
