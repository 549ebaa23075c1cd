// SPDX-License-Identifier: Apache-2.0

/**
 * zDNN 1.2.0: one function per C function, without the prefix, and the constants of `zdnn.h`.
 *
 * Parameters are in C order. An output stands last and may be left out: it is created. Where C writes
 * through a pointer, the function returns. A status that is an error is thrown (`ZdnnError`), a warning
 * is emitted (`ZdnnWarning`), ZDNN_OK is silent. The server owns C's work and save areas.
 */

export * from "./allocation.js";
export * from "./constants.gen.js";
export * from "./descriptors.js";
export * from "./library.js";
export * from "./lifecycle.js";
export * from "./macros.js";
export {
  getStatusMessage,
  ZDNN_DATA_ERROR,
  ZDNN_HW_ERROR,
  ZDNN_PARAMETER_ERROR,
  ZDNN_WARNING,
} from "./status.js";
export * from "./verbs.gen.js";
