// SPDX-License-Identifier: Apache-2.0
//! zDNN's C functions, remote.
//!
//! Functions that read or write the contents of tensors, or query the machine, call a server; all
//! others are local. `deploy/docs/c/functions.md` maps each function, `README.md` has the picture of
//! the rooms. The exported names are the 69 of `zdnn.h`; variadic functions, and code that needs
//! `FILE *` or `<fenv.h>`, are in `front/front.c`.
//!
//! `network` has the functions of a second library, `libnnpa_network`: generated C runs hosted
//! networks by them, over the same connection. Each library exports its own names only.
//!
//! Safety: every exported function has C's contract. Pointers are valid as the zDNN API Reference
//! 1.2.0 requires, and memory behind them is read only after the library's own checks have passed.
//! Unsafe functions inside have the same contract for what they get: a pointer is valid for the
//! bytes that its type, a descriptor or a size beside it says. Theirs is written down where it asks
//! for more.
#![allow(clippy::missing_safety_doc)]

// From the lowest room to the highest: a room uses rooms that stand above it in this list.
mod wire;

mod abi;
mod process;
mod rpc;
mod transfer;

mod call;

mod network;
mod verbs;
