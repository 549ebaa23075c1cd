// SPDX-License-Identifier: Apache-2.0
//! zDNN's C functions, remote.
//!
//! What reads or writes the contents of tensors, or asks the machine, goes to a server; everything
//! else is local. `deploy/docs/c/functions.md` maps each function, `README.md` has the picture of
//! the rooms. The exported names are the 69 of `zdnn.h`; the variadic ones, and what only C can
//! reach (`FILE *`, `<fenv.h>`), are in `front/front.c`.
//!
//! `network` has the functions of a second library, `libnnpa_network`, over the same connection:
//! networks that a server hosts, for generated C. Each library exports its own names only.
//!
//! Safety: every exported function has C's contract. Pointers are what the zDNN API Reference
//! 1.2.0 says that they are, and memory behind them is read only after the library's own checks.
#![allow(clippy::missing_safety_doc)]

// From the lowest room to the highest: a room uses those above it in this list.
mod wire;

mod abi;
mod process;
mod rpc;
mod transfer;

mod call;

mod network;
mod verbs;
