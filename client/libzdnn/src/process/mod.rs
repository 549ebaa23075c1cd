// SPDX-License-Identifier: Apache-2.0
//! What belongs to the process: its environment, its streams of text, its heap, and what a fork leaves.

pub mod diagnostics;
pub mod environment;
pub mod fault_rules;
pub mod fork;
pub mod heap;
pub mod machine;
pub mod mapping;
pub mod shortcuts;
