// SPDX-License-Identifier: Apache-2.0
//! The shortcut `content-cache`: sticks that the server has are named instead of sent, and outputs
//! are kept there under a name.

use bytes::Bytes;

use crate::abi::memory::memory;
use crate::rpc::failure::Failure;
use crate::transfer::content_cache::{
    ContentCache, Digest, Name, Output as CachedOutput, new_name,
};
use crate::transfer::{Input, Output, StickTransfer, Written};
use crate::wire::Ztensor;
use crate::wire::tensor_ref::Tensor;
use crate::wire::ztensor::Contents;

/// Sticks that the server's cache has once the call has succeeded.
struct Sent {
    digest: Digest,
    size: u64,
}

/// An input that the call has named: another input in the same memory gets the same name.
struct Named {
    address: *const u8,
    size: usize,
    kind: u32,
    name: Name,
}

/// The server's name of an output, and of the output that it replaces.
struct Kept {
    output: &'static str,
    name: Bytes,
    replaces: Bytes,
}

/// Wraps a transfer.
pub struct CachedTransfer<'a> {
    cache: &'a ContentCache,
    inner: Box<dyn StickTransfer + 'a>,
    sent: Vec<Sent>,
    named: Vec<Named>,
    outputs: Vec<Kept>,
}

impl<'a> CachedTransfer<'a> {
    /// Wraps a transfer.
    pub fn new(cache: &'a ContentCache, inner: Box<dyn StickTransfer + 'a>) -> Self {
        Self {
            cache,
            inner,
            sent: Vec::new(),
            named: Vec::new(),
            outputs: Vec::new(),
        }
    }

    /// Names sticks that the server has, or gets with another input of this call; else asks it to
    /// keep them.
    fn name(&mut self, input: Input<'_>, message: &mut Ztensor) {
        let Input { sticks, kind, .. } = input;
        let (address, size) = (sticks.as_ptr(), sticks.len());
        let is_same =
            |named: &&Named| (named.address, named.size, named.kind) == (address, size, kind);
        if let Some(named) = self.named.iter().find(is_same) {
            message.contents = Some(Contents::Cached(named.name.name.clone()));
            return;
        }
        let name = match self.cache.name(sticks, kind) {
            Ok(name) => {
                message.contents = Some(Contents::Cached(name.name.clone()));
                name
            }
            Err(digest) => self.keep(digest, size as u64, message),
        };
        self.named.push(Named {
            address,
            size,
            kind,
            name,
        });
    }

    fn keep(&mut self, digest: Digest, size: u64, message: &mut Ztensor) -> Name {
        let name = Bytes::copy_from_slice(&digest);
        if self.sent.iter().any(|sent| sent.digest == digest) {
            message.contents = Some(Contents::Cached(name.clone()));
        } else {
            message.cache_as = name.clone();
            self.sent.push(Sent { digest, size });
        }
        Name::of(name)
    }
}

impl StickTransfer for CachedTransfer<'_> {
    fn input(&mut self, input: Input<'_>, mut message: Ztensor) -> Result<Tensor, Failure> {
        if self.cache.fits(input.sticks.len() as u64) {
            self.name(input, &mut message);
        }
        self.inner.input(input, message)
    }

    fn output(&mut self, output: &Output, mut message: Ztensor) -> Result<Tensor, Failure> {
        if !self.cache.fits(output.size) {
            return self.inner.output(output, message);
        }
        let name = new_name();
        message.cache_as = name.clone();
        let mut tensor = self.inner.output(output, message)?;
        let mut replaces = Bytes::new();
        if let Tensor::InlineZtensor(message) = &mut tensor {
            replaces = self.cache.written_to(output.buffer as usize);
            message.cached_in_place = message.sticks_to.is_some();
            message.cache_instead_of = replaces.clone();
        }
        self.outputs.push(Kept {
            output: output.name,
            name,
            replaces,
        });
        Ok(tensor)
    }

    fn answered(&mut self, failure: Option<&Failure>) {
        if failure.is_none() {
            for Sent { digest, size } in &self.sent {
                self.cache.note_sent(*digest, *size);
            }
        }
        self.inner.answered(failure);
    }

    unsafe fn store(&mut self, output: &Output, answer: &Ztensor) -> Result<Written, Failure> {
        let written = unsafe { self.inner.store(output, answer) }?;
        let kept = self.outputs.iter().find(|kept| kept.output == output.name);
        let region = match &written {
            Written::Nothing => return Ok(written),
            Written::Copied => None,
            Written::CopiedFrom(region) => Some(region.clone()),
        };
        let sticks = match &answer.contents {
            Some(Contents::Sticks(sticks)) => sticks,
            _ => unsafe { memory(output.buffer, output.size) },
        };
        if let Some(kept) = kept {
            self.cache.note_output(CachedOutput {
                name: kept.name.clone(),
                kind: output.kind,
                buffer: output.buffer as usize,
                replaces: &kept.replaces,
                sticks,
                region,
            });
        }
        Ok(written)
    }
}
