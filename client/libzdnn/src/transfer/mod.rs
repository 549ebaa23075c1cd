// SPDX-License-Identifier: Apache-2.0
//! How the sticks and arrays of one call travel to the server and back.
//!
//! The plain transfer sends sticks inline, or streams them where they are too large for a message.
//! The shortcuts `shared-memory` and `content-cache` wrap it.

pub mod cached;
pub mod content_cache;
pub mod plain;
pub mod shared;
pub mod shared_memory;
pub mod streamed;

use std::ffi::c_void;
use std::sync::Arc;

use crate::rpc::failure::Failure;
use crate::transfer::shared_memory::Region;
use crate::wire::Ztensor;
use crate::wire::tensor_ref::Tensor;

/// Sticks that an operation reads.
#[derive(Clone, Copy)]
pub struct Input<'a> {
    pub sticks: &'a [u8],
    /// Their transformed type.
    pub kind: u32,
    /// Whether the operand must be a tensor of the session: a streamed call names it.
    pub stored: bool,
}

/// A buffer that an operation writes sticks to.
pub struct Output {
    pub name: &'static str,
    pub buffer: *mut c_void,
    pub size: u64,
    /// The transformed type of the sticks.
    pub kind: u32,
    /// Whether the operand must be a tensor of the session: a streamed call names it.
    pub stored: bool,
}

/// How an output's buffer was written.
pub enum Written {
    Nothing,
    /// The sticks were copied to it.
    Copied,
    /// They were copied from this region, where the server's cache may keep them.
    CopiedFrom(Arc<Region>),
}

/// The transfer of one call's operands. A message whose contents are set needs no sticks.
pub trait StickTransfer {
    /// Returns an input's reference, its sticks sent or named.
    fn input(&mut self, input: Input<'_>, message: Ztensor) -> Result<Tensor, Failure>;

    /// Returns an output's reference, which says how its sticks come back.
    fn output(&mut self, output: &Output, message: Ztensor) -> Result<Tensor, Failure>;

    /// Notes that the call has its result, or failed.
    fn answered(&mut self, failure: Option<&Failure>);

    /// Copies the sticks of an answer to an output's buffer.
    unsafe fn store(&mut self, output: &Output, answer: &Ztensor) -> Result<Written, Failure>;
}
