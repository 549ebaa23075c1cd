// SPDX-License-Identifier: Apache-2.0
//! The messages of `nnpa.network.v1`, as generated from the contract.
#![allow(clippy::all, clippy::pedantic, dead_code)]

include!(concat!(env!("OUT_DIR"), "/nnpa.network.v1.rs"));
