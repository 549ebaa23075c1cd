// SPDX-License-Identifier: Apache-2.0

/** Texts of the contract's messages: one line each, and never with a session's name. */

import { inspect } from "node:util";

import { describe } from "./elements.js";
import type { Machine, Session as SessionMessage } from "./gen/nnpa/zdnn/v1/accelerator_pb.js";
import type { TensorDesc } from "./gen/nnpa/zdnn/v1/tensor_pb.js";

/** Gives a message a text for console.log, a REPL and String(); it has no more enumerable fields. */
export function shown<T extends object>(message: T, text: (message: T) => string): T {
  const value = (): string => text(message);
  const property = { value, enumerable: false, configurable: true };
  return Object.defineProperties(message, { [inspect.custom]: property, toString: property });
}

/** Returns a machine's name as `connect` takes it, "custom" for a machine without a name. */
export function machineName(machine: Machine | undefined): string {
  const name = machine?.name.replace("machines/", "") ?? "";
  return name === "" ? "custom" : name;
}

/** Has a descriptor show layout, sizes and type: "TensorDesc(ZDNN_2D 2x3 FP32)". */
export function shownDesc(desc: TensorDesc): TensorDesc {
  return shown(desc, () => `TensorDesc(${describe(desc)})`);
}

/** Has a machine show its names and its number of functions. */
export function shownMachine(machine: Machine): Machine {
  return shown(machine, ({ aliases, displayName, functions, nnpaInstalled }) => {
    const names = [machineName(machine), ...aliases].join(", ");
    const installed = nnpaInstalled ? `${functions.length} functions` : "no NNPA";
    return `Machine(${names}: ${displayName}, ${installed})`;
  });
}

/** Has a session's state show machine, version, tensors and bytes, but not its name. */
export function shownSession(session: SessionMessage): SessionMessage {
  if (session.machine !== undefined) {
    shownMachine(session.machine);
  }
  Object.defineProperty(session, "name", { enumerable: false });
  return shown(session, ({ machine, libraryVersion, tensorCount, storedBytes }) => {
    const held = `${tensorCount} tensors, ${storedBytes} bytes`;
    return `Session(of ${machineName(machine)}, zDNN ${libraryVersion}: ${held})`;
  });
}
