// SPDX-License-Identifier: Apache-2.0

/** The messages of nnpa.zdnn.v1, for programs that speak the wire contract themselves. */

export * from "../gen/nnpa/zdnn/v1/accelerator_pb.js";
export * from "../gen/nnpa/zdnn/v1/operation_pb.js";
export * from "../gen/nnpa/zdnn/v1/status_pb.js";
export * from "../gen/nnpa/zdnn/v1/tensor_pb.js";
