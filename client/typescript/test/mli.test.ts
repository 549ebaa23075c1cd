// SPDX-License-Identifier: Apache-2.0

/** embARC MLI: the library's reference cases, batches, memory in place, mistakes. */

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { inspect } from "node:util";

import { connect, mli, type MliError, type Session } from "nnpa";

const GOLDEN = join(import.meta.dirname, "../../../../tests/vectors/mli");
const { MLI_EL_FP_32, MLI_EL_FX_8, MLI_EL_FX_16, MLI_EL_SA_8 } = mli.ElType;
/** The type of data and of weights in each variant. */
const VARIANTS = {
  Fx8: { file: "fx8", io: Int8Array, weights: Int8Array },
  Fx16: { file: "fx16", io: Int16Array, weights: Int16Array },
  Fx8w16d: { file: "fx8w16d", io: Int16Array, weights: Int8Array },
} as const;
type Variant = keyof typeof VARIANTS;
type Kind = typeof Int8Array | typeof Int16Array;

interface Described {
  shape: number[];
  frac_bits: number;
  mem_stride?: number[];
  data?: number[];
  data_rle?: [number, number][];
}

/** A reference case, as the files have it; which fields there are depends on the kernel. */
interface Case {
  mode: string;
  act: string;
  in: Described;
  prev_out: Described;
  weights: Described;
  bias: Described;
  cell: Described;
  out_frac_bits: number;
  out_frac_bits_before: number;
  status: number;
  out: Described & { rank: number };
  out_data_round_up?: number[];
  cell_data_after: number[];
  cell_data_after_round_up?: number[];
  ir_after: Described;
}

let session: Session;

before(async () => {
  session = await connect();
});
after(() => session.close());

async function golden<T>(name: string): Promise<T> {
  return JSON.parse(await readFile(join(GOLDEN, `${name}.json`), "utf8")) as T;
}

/** Returns a dense tensor of a record; runs of equal values may be run-length coded. */
function dense({ shape, frac_bits: fracBits, data, data_rle: runs = [] }: Described, kind: Kind): mli.Tensor {
  const values = data ?? runs.flatMap(([value, times]) => Array<number>(times).fill(value));
  return mli.tensor(kind.from(values), { shape, fracBits });
}

function checkOutput(out: mli.Tensor, expected: Described, data = expected.data): void {
  const { shape, fracBits, array } = out;
  assert.deepEqual(
    { shape, fracBits, data: [...array] },
    { shape: expected.shape, fracBits: expected.frac_bits, data },
  );
}

function configuration({ mode, act }: Case): mli.RnnCellCfg {
  const modes: Record<string, mli.RnnMode> = mli.RnnMode as never;
  const acts: Record<string, mli.RnnOutActivation> = mli.RnnOutActivation as never;
  const [chosenMode, chosenAct] = [
    modes[`RNN_${mode.toUpperCase()}`],
    acts[`RNN_ACT_${act.toUpperCase()}`],
  ];
  assert.ok(chosenMode !== undefined && chosenAct !== undefined);
  return { mode: chosenMode, act: chosenAct };
}

void describe("reference cases of the library", () => {
  for (const variant of Object.keys(VARIANTS) as Variant[]) {
    const { file, io, weights: weightKind } = VARIANTS[variant];

    test(`fully connected, ${file}: values, shape and fractional bits, in both roundings`, async () => {
      const { cases } = await golden<{ cases: Case[] }>(`v1_fully_connected_${file}`);
      const plain = cases.filter(({ weights: { mem_stride: [pitch] = [], shape: [, n] } }) =>
        !pitch || pitch === n,
      );
      assert.ok(plain.length >= 40, "cases whose weights are dense");
      for (const each of plain) {
        const kernel = mli[`krnFullyConnected${variant}`];
        const tensors = [dense(each.in, io), dense(each.weights, weightKind), dense(each.bias, weightKind)] as const;
        for (const rounding of ["convergent", "up"] as const) {
          const out = await kernel(session, ...tensors, { fracBits: each.out_frac_bits, rounding });
          checkOutput(out, each.out, rounding === "up" ? each.out_data_round_up : undefined);
        }
      }
    });

    test(`basic RNN cell, ${file}: values, shape and fractional bits, in both roundings`, async () => {
      const { cases } = await golden<{ cases: Case[] }>(`v1_basic_rnn_${file}`);
      assert.ok(cases.length >= 75);
      for (const each of cases) {
        for (const rounding of ["convergent", "up"] as const) {
          const out = await mli[`krnBasicRnnCell${variant}`](
            session,
            dense(each.in, io),
            dense(each.prev_out, io),
            dense(each.weights, weightKind),
            dense(each.bias, weightKind),
            configuration(each),
            { fracBits: each.out_frac_bits_before, rounding },
          );
          checkOutput(out, each.out, rounding === "up" ? each.out_data_round_up : undefined);
        }
      }
    });

    test(`LSTM cell, ${file}: output, cell and intermediate results, in both roundings`, async () => {
      const { cases } = await golden<{ cases: Case[] }>(`v1_lstm_${file}`);
      assert.ok(cases.length >= 77);
      for (const each of cases) {
        for (const rounding of ["convergent", "up"] as const) {
          const cell = dense(each.cell, io);
          const elType = io === Int8Array ? MLI_EL_FX_8 : MLI_EL_FX_16;
          const irTsr = mli.empty(4 * cell.array.length, elType);
          const out = await mli[`krnLstmCell${variant}`](
            session,
            dense(each.in, io),
            dense(each.prev_out, io),
            dense(each.weights, weightKind),
            dense(each.bias, weightKind),
            { ...configuration(each), irTsr },
            cell,
            { rounding },
          );
          const isUp = rounding === "up";
          checkOutput(out, each.out, isUp ? each.out_data_round_up : undefined);
          const after = (isUp ? each.cell_data_after_round_up : undefined) ?? each.cell_data_after;
          assert.deepEqual([...cell.array], after);
          if (!isUp) {
            checkOutput(irTsr, each.ir_after);
          }
        }
      }
    });
  }

  for (const [name, kind] of [["fx8", Int8Array], ["fx16", Int16Array]] as const) {
    for (const curve of ["tanh", "sigm"] as const) {
      test(`${curve}, ${name}: every input of the file, in both roundings`, async () => {
        const table = await golden<{ in_data?: number[]; cases: Curve[] }>(`v1_${curve}_${name}`);
        const inputs = table.in_data ?? Array.from({ length: 256 }, (_, i) => i - 128);
        const kernel = curve === "tanh"
          ? { fx8: mli.krnTanhFx8, fx16: mli.krnTanhFx16 }[name]
          : { fx8: mli.krnSigmFx8, fx16: mli.krnSigmFx16 }[name];
        for (const each of table.cases) {
          const x = mli.tensor(kind.from(inputs), { fracBits: each.in_frac_bits });
          for (const rounding of ["convergent", "up"] as const) {
            const { array, fracBits } = await kernel(session, x, { rounding });
            const data = (rounding === "up" ? each.out_round_up : undefined) ?? each.out;
            assert.deepEqual([[...array], fracBits], [data, each.out_frac_bits]);
          }
        }
      });
    }
  }
});

interface Curve {
  in_frac_bits: number;
  out_frac_bits: number;
  out: number[];
  out_round_up?: number[];
}

test("a batch is one request, whose kernels read what those before them wrote", async () => {
  const x = mli.tensor(Int8Array.of(16, -16, 4), { fracBits: 4 });
  const weights = mli.tensor(Int8Array.of(1, 2, 3, -1, -2, -3), { shape: [2, 3], fracBits: 4 });
  const bias = mli.tensor(Int8Array.of(1, 1), { fracBits: 4 });
  const alone = await mli.krnTanhFx8(
    session,
    await mli.krnFullyConnectedFx8(session, x, weights, bias, { fracBits: 6 }),
  );
  const { hidden, out } = await mli.batch(session, async (batch) => {
    const sums = await mli.krnFullyConnectedFx8(batch, x, weights, bias, { fracBits: 6 });
    assert.deepEqual(sums.shape, []);
    return { hidden: sums, out: await mli.krnTanhFx8(batch, sums) };
  });
  assert.deepEqual([hidden.shape, out.array], [[2], alone.array]);
});

test("with the input itself as out an activation works in place", async () => {
  const x = mli.tensor(Int8Array.of(-128, 0, 8, 127), { fracBits: 4, shape: [2, 2] });
  const apart = await mli.krnTanhFx8(session, x);
  const out = await mli.krnTanhFx8(session, x, { out: x });
  assert.equal(out, x);
  assert.deepEqual([x.array, x.fracBits, x.shape], [apart.array, 7, [2, 2]]);
});

test("numbers become the nearest elements, ties to even, and saturate; and back", () => {
  const halves = mli.quantise([0.5, 1.5, 2.5, -0.5, -2.5, 200, -200], { elType: MLI_EL_FX_8, fracBits: 0 });
  assert.deepEqual([...halves.array], [0, 2, 2, 0, -2, 127, -128]);
  const fitted = mli.quantise([-1.5, 0.25], { elType: MLI_EL_FX_16 });
  assert.deepEqual([fitted.fracBits, [...mli.dequantise(fitted)]], [14, [-1.5, 0.25]]);
  assert.deepEqual([...mli.dequantise(mli.tensor(Float32Array.of(1.5)))], [1.5]);
});

test("elements convert between fixed point, signed asymmetric and FP32", async () => {
  const source = mli.tensor(Float32Array.of(-1, 0, 0.5), {});
  const sa = { zeroPoint: [3], scale: [1], scaleFracBits: [4] };
  const asymmetric = await mli.hlpConvertTensor(session, source, mli.empty(3, MLI_EL_SA_8, { sa }));
  assert.deepEqual([...asymmetric.array], [-13, 3, 11]);
  const withoutFp32 = mli.hlpConvertTensorSafx(session, source, mli.empty(3, MLI_EL_SA_8, { sa }));
  await assert.rejects(withoutFp32, { name: "MliError", kernel: "hlp_convert_tensor_safx" });
  const back = await mli.hlpConvertTensor(session, asymmetric, mli.empty(3, MLI_EL_FP_32));
  assert.deepEqual([...mli.dequantise(back)], [-1, 0, 0.5]);
});

void describe("mistakes", () => {
  const x = mli.tensor(Int8Array.of(1, 2, 3), { fracBits: 4 });
  const weights = mli.tensor(Int8Array.of(1, 2, 3, 4), { shape: [2, 2], fracBits: 4 });
  const bias = mli.tensor(Int8Array.of(1, 1), { fracBits: 4 });

  test("a status of the library is an MliError with field, value and limit", async () => {
    const running = mli.krnFullyConnectedFx8(session, x, weights, bias, { fracBits: 4 });
    await assert.rejects(running, (error: MliError) => {
      assert.equal(error.statusName, "MLI_STATUS_SHAPE_MISMATCH");
      assert.equal(error.kernel, "krn_fully_connected_fx8");
      assert.equal(error.kernelIndex, undefined);
      assert.ok(error.refusal?.field && error.message.includes(error.refusal.text), error.message);
      return error.message.startsWith("mli_krn_fully_connected_fx8: ");
    });
  });

  test("in a batch the error says which kernel, and those before it have written", async () => {
    const out = mli.empty(3, MLI_EL_FX_8);
    const running = mli.batch(session, async (batch) => {
      await mli.krnTanhFx8(batch, x, { out });
      await mli.krnFullyConnectedFx8(batch, x, weights, bias, { fracBits: 4 });
    });
    await assert.rejects(running, { name: "MliError", kernelIndex: 1 });
    assert.deepEqual(out.shape, [3]);
  });

  test("what is no tensor, or lacks its parameters, is refused before the wire", async () => {
    const none = undefined as unknown as mli.Tensor;
    await assert.rejects(mli.krnTanhFx8(session, Int8Array.of(1) as never, { out: x }), {
      name: "TypeError",
      message: "in: an object, expected an mli.Tensor; mli.tensor(array) makes one",
    });
    await assert.rejects(
      mli.krnFullyConnectedFx8(session, x, weights, none, { fracBits: 4 }),
      /^TypeError: bias: undefined, expected an mli\.Tensor/,
    );
    await assert.rejects(mli.krnFullyConnectedFx8(session, x, weights, bias, {}), /^TypeError: fracBits: /);
    assert.throws(() => mli.tensor(Int8Array.of(1)), /^TypeError: array: Int8Array, expected Int8Array or/);
    assert.throws(() => mli.tensor(Int8Array.of(1), { fracBits: 1, shape: [2] }), /shape \[2\] has 2/);
    assert.throws(() => mli.quantise([NaN], { elType: MLI_EL_FX_8 }), /^RangeError: values: NaN/);
    assert.throws(() => mli.empty(-1, MLI_EL_FX_8), /^RangeError: count: -1/);
  });

  test("build options of a kernel in a batch are refused, and unknown values", async () => {
    const running = mli.batch(session, (batch) => mli.krnTanhFx8(batch, x, { rounding: "up" }));
    await assert.rejects(running, /^TypeError: rounding: given to a kernel in a batch, expected in the options of the batch$/);
    const rounding = "down" as "up";
    await assert.rejects(mli.krnTanhFx8(session, x, { rounding }), /expected one of convergent, up/);
  });
});

test("a tensor shows shape, type and parameters in one line", () => {
  assert.equal(inspect(mli.tensor(Int16Array.of(1, 2), { fracBits: 12 })), "mli.Tensor(2 MLI_EL_FX_16, 12 frac_bits)");
  assert.equal(inspect(mli.tensor(new Float32Array(6), { shape: [2, 3] })), "mli.Tensor(2x3 MLI_EL_FP_32)");
});
