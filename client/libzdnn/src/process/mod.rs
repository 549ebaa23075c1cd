// SPDX-License-Identifier: Apache-2.0
//! State of the process: its environment, standard streams and heap, and forks.

pub mod diagnostics;
pub mod environment;
pub mod fault_rules;
pub mod fork;
pub mod heap;
pub mod machine;
pub mod mapping;
pub mod shortcuts;
