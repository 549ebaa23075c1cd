// SPDX-License-Identifier: Apache-2.0
//! Compiles the wire contract and the C front.

use std::error::Error;

const PROTOS: &str = "../../protos";
const SERVICE: &str = "nnpa/zdnn/v1/accelerator.proto";
const NETWORKS: &str = "nnpa/network/v1/network.proto";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed={PROTOS}/nnpa");
    println!("cargo:rerun-if-changed=front");
    println!("cargo:rerun-if-changed=include");
    prost_build::Config::new()
        .bytes(["."])
        .compile_fds(protox::compile([SERVICE], [PROTOS])?)?;
    prost_build::Config::new()
        .bytes(["."])
        .extern_path(".nnpa.zdnn.v1", "crate::wire")
        .compile_fds(protox::compile([NETWORKS], [PROTOS])?)?;
    cc::Build::new()
        .file("front/front.c")
        .include("include")
        .flag("-std=gnu11")
        .warnings_into_errors(true)
        .extra_warnings(true)
        .compile("zdnn_front");
    Ok(())
}
