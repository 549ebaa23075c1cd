// SPDX-License-Identifier: Apache-2.0
//! A message as it travels, in pieces: large contents are sent from where they are.

use std::io::IoSlice;

use bytes::buf::UninitSlice;
use bytes::{Buf, BufMut, Bytes};
use prost::Message;
use tonic::Status;

use crate::rpc::http2::prefix;

/// Contents of fewer bytes are copied rather than sent apart.
const LEAST_APART: usize = 16 << 10;

/// A message with its prefix.
#[derive(Default)]
pub struct Pieces {
    copied: Vec<u8>,
    /// What is not copied, and how many copied bytes go before it.
    apart: Vec<(usize, Bytes)>,
}

// All memory that is written to is the vector's.
unsafe impl BufMut for Pieces {
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
        if source.remaining() < LEAST_APART {
            return self.copied.put(source);
        }
        let contents = source.copy_to_bytes(source.remaining()); // copies nothing out of `Bytes`
        self.apart.push((self.copied.len(), contents));
    }
}

impl Pieces {
    /// Returns a message as it travels.
    pub fn of(message: &impl Message) -> Result<Self, Status> {
        let mut pieces = Self::default();
        pieces
            .copied
            .extend_from_slice(&prefix(message.encoded_len())?);
        let encoded = message.encode(&mut pieces);
        encoded.map_err(|error| Status::internal(error.to_string()))?;
        Ok(pieces)
    }

    /// Returns the pieces in order.
    pub fn slices(&self) -> Vec<IoSlice<'_>> {
        let mut slices = Vec::with_capacity(2 * self.apart.len() + 1);
        let mut since = 0;
        for (until, contents) in &self.apart {
            slices.push(IoSlice::new(&self.copied[since..*until]));
            slices.push(IoSlice::new(contents));
            since = *until;
        }
        slices.push(IoSlice::new(&self.copied[since..]));
        slices
    }
}
