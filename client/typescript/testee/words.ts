// SPDX-License-Identifier: Apache-2.0

/** Words of the conformance protocol: hexadecimal, most significant digit first, `3E00*64` for runs. */

/** Returns the little-endian bytes of a text of words. */
export function littleEndian(text: string): Uint8Array {
  const parts = text.split(/\s+/).filter(Boolean).map((token) => {
    const [word = "", count = "1"] = token.split("*");
    const pattern = Buffer.from(word, "hex").reverse();
    return Buffer.alloc(pattern.length * Number(count), pattern);
  });
  return new Uint8Array(Buffer.concat(parts));
}

/** Returns little-endian bytes as a text of words, `width` bytes each. */
export function wordsOf(bytes: Uint8Array, width: number): string {
  const runs: [word: string, count: number][] = [];
  for (let at = 0; at < bytes.byteLength; at += width) {
    const word = Buffer.from(bytes.slice(at, at + width)).reverse().toString("hex").toUpperCase();
    const last = runs.at(-1);
    if (last?.[0] === word) {
      last[1] += 1;
    } else {
      runs.push([word, 1]);
    }
  }
  return runs.map(([word, count]) => (count > 1 ? `${word}*${count}` : word)).join(" ");
}

/** Returns a number as an FP32 word. */
export function fp32Word(value: number): string {
  return wordsOf(new Uint8Array(Float32Array.of(value).buffer), 4);
}

/** Returns a number that FP16 holds exactly, not a denormal, as a word. */
export function fp16Word(value: number): string {
  const bits = new Uint32Array(Float32Array.of(value).buffer)[0] ?? 0;
  const exponent = ((bits >>> 23) & 0xff) - 127 + 15;
  const half = ((bits >>> 16) & 0x8000) | (exponent << 10) | ((bits >>> 13) & 0x3ff);
  return half.toString(16).toUpperCase().padStart(4, "0");
}

/** Parses JSON whose integers may be larger than a double holds: those come as text. */
export function parse(text: string): unknown {
  return JSON.parse(text.replace(/(?<=[:,[]\s*)\d{16,}(?=\s*[,\]}])/g, '"$&"')) as unknown;
}

/** Writes JSON with numbers for bigints. */
export function stringify(value: unknown): string {
  const text = JSON.stringify(value, (_key, field: unknown) =>
    typeof field === "bigint" ? `bigint ${field}` : field,
  );
  return text.replace(/"bigint (\d+)"/g, "$1");
}
