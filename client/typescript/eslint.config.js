// SPDX-License-Identifier: Apache-2.0
import eslint from "@eslint/js";
import tseslint from "typescript-eslint";

export default tseslint.config(
  { ignores: ["dist/", "src/gen/", "eslint.config.js"] },
  eslint.configs.recommended,
  tseslint.configs.strictTypeChecked,
  tseslint.configs.stylisticTypeChecked,
  {
    languageOptions: {
      parserOptions: { projectService: true, tsconfigRootDir: import.meta.dirname },
    },
    rules: {
      "max-lines-per-function": ["error", { max: 30, skipBlankLines: true, skipComments: true }],
      // zDNN's words in messages are numbers more often than not.
      "@typescript-eslint/restrict-template-expressions": [
        "error",
        { allowNumber: true, allowAny: false, allowNullish: false },
      ],
      // zDNN's enums are open: any number may stand for a value of theirs.
      "@typescript-eslint/no-unsafe-enum-assignment": "off",
      "@typescript-eslint/no-unsafe-enum-comparison": "off",
      // node:test keeps the promise of a top-level test itself.
      "@typescript-eslint/no-floating-promises": [
        "error",
        { allowForKnownSafeCalls: [{ from: "package", name: ["test", "describe"], package: "node:test" }] },
      ],
    },
  },
  // A group of tests is one function.
  { files: ["test/**/*.ts"], rules: { "max-lines-per-function": "off" } },
  { files: ["**/*.ts"], ignores: ["src/**/*.gen.ts"], rules: { "max-lines": ["error", 400] } },
);
