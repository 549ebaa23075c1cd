// SPDX-License-Identifier: Apache-2.0

/** The messages of nnpa.network.v1: hosted networks. */

export * from "../gen/nnpa/network/v1/network_pb.js";
export * from "../gen/nnpa/network/v1/program_pb.js";
