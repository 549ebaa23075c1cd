// SPDX-License-Identifier: Apache-2.0
//! A message with gRPC's prefix. Large contents are not copied into it.
//! Source: gRPC over HTTP2, "Length-Prefixed-Message".

use std::io::IoSlice;

use bytes::buf::UninitSlice;
use bytes::{Buf, BufMut, Bytes};
use prost::Message;
use tonic::Status;

use crate::rpc::failure::Failure;
use crate::rpc::pool::Pool;

/// The prefix: one byte that says whether the message is compressed, four with its length.
pub const PREFIX_BYTES: usize = 5;
/// Contents of fewer bytes are copied.
const MIN_BORROWED: usize = 16 << 10;

fn prefix(size: usize) -> Result<[u8; PREFIX_BYTES], Status> {
    let size = u32::try_from(size);
    let size = size.map_err(|_| Status::resource_exhausted("a message has 4 GiB or more"))?;
    let [a, b, c, d] = size.to_be_bytes();
    Ok([0, a, b, c, d])
}

/// An encoded message with its prefix.
#[derive(Default)]
pub struct Frame {
    copied: Vec<u8>,
    /// Contents that were not copied, each with the number of copied bytes before it.
    borrowed: Vec<(usize, Bytes)>,
}

// All memory that is written to is the vector's.
unsafe impl BufMut for Frame {
    fn remaining_mut(&self) -> usize {
        self.copied.remaining_mut()
    }

    unsafe fn advance_mut(&mut self, count: usize) {
        unsafe { self.copied.advance_mut(count) };
    }

    fn chunk_mut(&mut self) -> &mut UninitSlice {
        self.copied.chunk_mut()
    }

    fn put<T: Buf>(&mut self, mut source: T) {
        if source.remaining() < MIN_BORROWED {
            return self.copied.put(source);
        }
        let contents = source.copy_to_bytes(source.remaining()); // copies nothing out of `Bytes`
        self.borrowed.push((self.copied.len(), contents));
    }
}

impl Frame {
    /// Encodes a message.
    pub fn of(message: &impl Message) -> Result<Self, Failure> {
        let mut frame = Self::default();
        let size = message.encoded_len();
        frame.copied.extend_from_slice(&prefix(size)?);
        let encoded = message.encode(&mut frame);
        encoded.map_err(|error| Status::internal(error.to_string()))?;
        Ok(frame)
    }

    /// Returns the parts in order.
    pub fn slices(&self) -> Vec<IoSlice<'_>> {
        let mut slices = Vec::with_capacity(2 * self.borrowed.len() + 1);
        let mut since = 0;
        for (until, contents) in &self.borrowed {
            slices.push(IoSlice::new(&self.copied[since..*until]));
            slices.push(IoSlice::new(contents));
            since = *until;
        }
        slices.push(IoSlice::new(&self.copied[since..]));
        slices
    }

    /// Copies all parts into memory of the pool.
    pub fn joined(&self, pool: &Pool) -> Bytes {
        let slices = self.slices();
        let mut memory = pool.take(slices.iter().map(|part| part.len()).sum());
        for part in &slices {
            memory.extend_from_slice(part);
        }
        pool.lend(memory)
    }
}
