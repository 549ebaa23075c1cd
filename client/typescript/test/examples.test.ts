// SPDX-License-Identifier: Apache-2.0

/** What the documentation shows compiles and runs: the manual's programs and the examples. */

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { copyFile, mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { promisify } from "node:util";

import { connect, type Session } from "nnpa";
import typescript from "typescript";

import { layer } from "../examples/mli.js";

const run = promisify(execFile);
const HOME = join(import.meta.dirname, "../..");
const FOLDER = join(HOME, "dist/readme");
/** A model that adds its 2x3 input to itself. */
const MODEL = join(HOME, "../go/examples/network/testdata/double.onnx");
// Without what this runner tells its children, a suite reports as if it were run by hand.
const OWN_TESTS = { ...process.env, NODE_TEST_CONTEXT: undefined };

let session: Session;

before(async () => {
  session = await connect();
  await mkdir(FOLDER, { recursive: true });
  await copyFile(MODEL, join(FOLDER, "model.onnx"));
});
after(async () => {
  await session.close();
  await rm(FOLDER, { recursive: true });
});

/** Compiles programs with the package's own options; returns what the compiler complains about. */
function compile(files: string[]): string[] {
  const { config } = typescript.readConfigFile(join(HOME, "tsconfig.json"), (path) =>
    typescript.sys.readFile(path),
  ) as { config: { compilerOptions: object } };
  const { options } = typescript.convertCompilerOptionsFromJson(config.compilerOptions, HOME);
  const program = typescript.createProgram(files, { ...options, rootDir: FOLDER, outDir: FOLDER });
  const diagnostics = [...typescript.getPreEmitDiagnostics(program), ...program.emit().diagnostics];
  return diagnostics.map(({ messageText }) => typescript.flattenDiagnosticMessageText(messageText, "\n"));
}

test("the manual's programs and tests compile, run, and print what they say", async () => {
  const pages = ["README.md", "../../deploy/docs/typescript.md"];
  const text = (await Promise.all(pages.map((page) => readFile(join(HOME, page), "utf8")))).join("\n");
  const programs = [...text.matchAll(/```ts\n(.*?)```/gs)].map((found) => found[1] ?? "");
  const files = programs.map((_, index) => join(FOLDER, `program${index}.ts`));
  await Promise.all(files.map((file, index) => writeFile(file, programs[index] ?? "")));
  assert.deepEqual(compile(files), []);
  const outputs: string[] = [];
  for (const file of files) {
    outputs.push((await run("node", [file.replace(/ts$/, "js")], { cwd: FOLDER, env: OWN_TESTS })).stdout);
  }
  const suite = programs.findIndex((program) => program.includes("node:test"));
  const report = outputs.splice(suite, 1)[0] ?? "";
  for (const machine of ["telum1", "telum2"]) {
    assert.match(report, new RegExp(`^(?:ok \\d+ -|✔) sum on ${machine}\\b`, "m"));
  }
  assert.deepEqual(outputs, [
    "Float32Array(4) [ 2, 6, 12, 20 ]\n",
    "Float32Array(6) [ 1, 2, 3, 4, 4, 4 ] 32768\n",
    ...outputs.slice(2),
  ]);
  const tail = programs.filter((_, index) => index !== suite).slice(2);
  const comments = tail.map((program) => program.match(/(?<=\/\/ ).*/g));
  for (const [index, output] of outputs.slice(2).entries()) {
    assert.deepEqual(output.trim().split("\n"), comments[index]);
  }
  assert.match(programs[0] ?? "", /console.log.*Float32Array\(4\) \[ 2, 6, 12, 20 \]/);
});

test("the README's commands run its first program in an empty folder", { timeout: 600_000 }, async () => {
  const text = await readFile(join(HOME, "README.md"), "utf8");
  const commands = [...text.matchAll(/^ {4}((?:npm|npx|node) .*)$/gm)].map((found) => found[1] ?? "");
  const folder = await mkdtemp(join(tmpdir(), "first-"));
  try {
    await writeFile(join(folder, "first.ts"), /```ts\n(.*?)```/s.exec(text)?.[1] ?? "");
    let output = "";
    for (const command of commands.slice(0, commands.indexOf("node first.js") + 1)) {
      const line = command.replaceAll("/path/to/nnpa", join(HOME, "../.."));
      output = (await run("sh", ["-c", line], { cwd: folder })).stdout;
    }
    assert.equal(output, "Float32Array(4) [ 2, 6, 12, 20 ]\n");
  } finally {
    await rm(folder, { recursive: true });
  }
});

void describe("examples", () => {
  test("the ten programs run, and add prints its sum", async () => {
    const { stdout } = await run("node", [join(HOME, "dist/examples/run.js"), session.target]);
    const lines = stdout.trim().split("\n");
    assert.equal(lines.length, 10);
    const { name, results } = JSON.parse(lines[0] ?? "") as { name: string; results: string[][] };
    assert.equal(name, "add");
    assert.deepEqual(results[0]?.slice(0, 3), ["00000000", "40000000", "40800000"]);
  });

  test("MLI: tanh of a layer is that of the same layer in doubles, within the format's steps", async () => {
    const x = [0.5, -0.25, 1];
    const sums = [
      0.5 * 0.5 + -0.5 * -0.25 + 0.25 * 1 + 0.125,
      1 * 0.5 + 0 * -0.25 + -0.25 * 1 - 0.125,
    ];
    for (const [index, value] of (await layer(session, x)).entries()) {
      assert.ok(Math.abs(value - Math.tanh(sums[index] ?? NaN)) < 0.002, `${value}`);
    }
  });

  test("hosted networks: the example shows network and report, and runs the model", async () => {
    const script = join(HOME, "dist/examples/network.js");
    const { stdout } = await run("node", [script, MODEL, session.target]);
    const [net, report, ...outputs] = stdout.split("\n");
    assert.equal(net, "Network(network_1 on telum2: x float32[2, 3] -> y float32[2, 3])");
    const places = "1 nodes on the accelerator, 0 on the host, 0 folded";
    assert.equal(report, `NetworkReport(network_1 on telum2: ${places})`);
    assert.match(outputs.join(" "), /y: \{ data: Float32Array\(6\) \[[ 0,]*\]/);
  });
});
