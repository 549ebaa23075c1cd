// SPDX-License-Identifier: Apache-2.0

/** What the Python client gets from hosted networks, printed by the scripts of the conformance suite. */

import { execFile } from "node:child_process";
import { dirname, join } from "node:path";
import { promisify } from "node:util";

const ROOT = join(import.meta.dirname, "../../../..");
export const DIGITS = join(ROOT, "client/python/nnpa_client/networks/digits_cnn.onnx");
export const DOUBLE = join(ROOT, "client/go/examples/network/testdata/double.onnx");
const run = promisify(execFile);

/** Returns the JSON that a script prints; its interpreter is beside nnpa-server. */
export async function printedByPython(script: string, ...more: string[]): Promise<object> {
  const { stdout: server } = await run("sh", ["-c", "command -v nnpa-server"]);
  const python = join(dirname(server.trim()), "python");
  const path = join(ROOT, "tests/conformance", script);
  const { stdout } = await run(python, [path, ...more]);
  return JSON.parse(stdout) as object;
}
