// SPDX-License-Identifier: Apache-2.0

/** The version of zDNN, of a session or of this package. */

import { ZDNN_VERNUM, ZDNN_VERSION } from "./constants.gen.js";
import type { Session } from "./session.js";

/**
 * Returns the version of the session's zDNN, 0x00MMmmpp; without a session, 0x00010200.
 *
 * Source: zDNN API Reference 1.2.0, zdnn_get_library_version.
 */
export function getLibraryVersion(session?: Session): number {
  if (session === undefined) {
    return ZDNN_VERNUM;
  }
  return session.library.split(".").reduce((number, part) => (number << 8) | Number(part), 0);
}

/**
 * Returns the version of the session's zDNN as text; without a session, "1.2.0".
 *
 * Source: zDNN API Reference 1.2.0, zdnn_get_library_version_str.
 */
export function getLibraryVersionStr(session?: Session): string {
  return session?.library ?? ZDNN_VERSION;
}
