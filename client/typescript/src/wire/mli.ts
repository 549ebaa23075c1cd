// SPDX-License-Identifier: Apache-2.0

/** The messages of nnpa.mli.v1: embARC MLI's kernels. */

export * from "../gen/nnpa/mli/v1/mli_pb.js";
