// SPDX-License-Identifier: Apache-2.0
//! The plain transfer: sticks inline, or streamed where they are too large for a message.

use bytes::Bytes;

use crate::abi::memory::lent;
use crate::rpc::failure::Failure;
use crate::rpc::session_channel::SessionChannel;
use crate::transfer::streamed::{free, new_id, read_sticks, write_sticks};
use crate::transfer::{Input, Output, StickTransfer, Written};
use crate::wire::Ztensor;
use crate::wire::tensor_ref::Tensor;
use crate::wire::ztensor::Contents;

/// Room in a message for all but sticks, bytes.
const MESSAGE_MARGIN: u64 = 1 << 20;

/// A tensor of the session that holds an output.
struct StreamedOutput {
    name: &'static str,
    id: u64,
    cache_as: Bytes,
}

/// Sends inline or streamed sticks of one call. Its tensors of the session end with it.
pub struct PlainTransfer<'a> {
    server: &'a SessionChannel,
    /// Bytes that the call's message still has room for.
    room: u64,
    temporaries: Vec<u64>,
    outputs: Vec<StreamedOutput>,
}

impl<'a> PlainTransfer<'a> {
    /// Starts with an empty message.
    pub fn new(server: &'a SessionChannel) -> Self {
        let limit = server.limits.max_message_bytes;
        Self {
            server,
            room: limit.saturating_sub(MESSAGE_MARGIN),
            temporaries: Vec::new(),
            outputs: Vec::new(),
        }
    }

    /// Creates a tensor of the session with sticks, or with zeros for none.
    fn create(&mut self, message: Ztensor, sticks: &[u8]) -> Result<u64, Failure> {
        let id = new_id();
        write_sticks(self.server, id, message, sticks)?;
        self.temporaries.push(id);
        Ok(id)
    }
}

impl Drop for PlainTransfer<'_> {
    /// Frees the call's tensors of the session. A tensor that cannot be freed ends with the
    /// session.
    fn drop(&mut self) {
        for id in &self.temporaries {
            drop(self.server.execute(free(*id)));
        }
    }
}

impl StickTransfer for PlainTransfer<'_> {
    fn input(&mut self, input: Input<'_>, mut message: Ztensor) -> Result<Tensor, Failure> {
        let size = input.sticks.len() as u64;
        let is_set = message.contents.is_some();
        let is_large = !is_set && (size > self.server.limits.max_inline_bytes || size > self.room);
        if input.stored || is_large {
            let sticks = if is_set { &[] } else { input.sticks };
            return self.create(message, sticks).map(Tensor::Id);
        }
        if !is_set {
            self.room -= size;
            message.contents = Some(Contents::Sticks(unsafe { lent(input.sticks) }));
        }
        Ok(Tensor::InlineZtensor(message))
    }

    fn output(&mut self, output: &Output, message: Ztensor) -> Result<Tensor, Failure> {
        let is_large = output.size > self.server.limits.max_inline_bytes;
        if !output.stored && (!is_large || message.sticks_to.is_some()) {
            return Ok(Tensor::InlineZtensor(message));
        }
        let cache_as = message.cache_as.clone();
        let id = self.create(message, &[])?;
        self.outputs.push(StreamedOutput {
            name: output.name,
            id,
            cache_as,
        });
        Ok(Tensor::Id(id))
    }

    fn answered(&mut self, _failure: Option<&Failure>) {}

    unsafe fn store(&mut self, output: &Output, answer: &Ztensor) -> Result<Written, Failure> {
        if let Some(Contents::Sticks(sticks)) = &answer.contents {
            let fits = sticks.len() as u64 == output.size && !output.buffer.is_null();
            if !fits {
                return Err(Failure::Lost(format!("{}: sticks do not fit", output.name)));
            }
            let buffer = output.buffer.cast::<u8>();
            unsafe { buffer.copy_from(sticks.as_ptr(), sticks.len()) };
            return Ok(Written::Copied);
        }
        let mut outputs = self.outputs.iter();
        let Some(streamed) = outputs.find(|streamed| streamed.name == output.name) else {
            return Ok(Written::Nothing);
        };
        let (id, cache_as) = (streamed.id, streamed.cache_as.clone());
        unsafe { read_sticks(self.server, id, cache_as, output.buffer, output.size) }?;
        Ok(Written::Copied)
    }
}
