// SPDX-License-Identifier: Apache-2.0
//! What the program's environment says, and what the library prints.

pub mod diagnostics;
pub mod environment;
