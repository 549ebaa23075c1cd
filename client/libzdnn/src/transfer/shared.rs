// SPDX-License-Identifier: Apache-2.0
//! The shortcut `shared-memory`: sticks and arrays pass in memory that the server maps.

use std::sync::Arc;

use crate::rpc::failure::Failure;
use crate::transfer::shared_memory::{Region, SharedMemory};
use crate::transfer::{Input, Output, StickTransfer, Written};
use crate::wire::tensor_ref::Tensor;
use crate::wire::ztensor::Contents;
use crate::wire::{Extent, Ztensor};

/// Wraps a transfer; its regions are held until the call is over.
pub struct SharedTransfer<'a> {
    memory: &'a Arc<SharedMemory>,
    inner: Box<dyn StickTransfer + 'a>,
    inputs: Vec<Region>,
    outputs: Vec<(&'static str, Arc<Region>)>,
}

impl<'a> SharedTransfer<'a> {
    /// Wraps a transfer.
    pub fn new(memory: &'a Arc<SharedMemory>, inner: Box<dyn StickTransfer + 'a>) -> Self {
        Self {
            memory,
            inner,
            inputs: Vec::new(),
            outputs: Vec::new(),
        }
    }
}

impl StickTransfer for SharedTransfer<'_> {
    fn input(&mut self, input: Input<'_>, mut message: Ztensor) -> Result<Tensor, Failure> {
        if !input.stored
            && message.contents.is_none()
            && let Some(region) = self.memory.copy(input.sticks)
        {
            message.contents = Some(Contents::Shared(region.extent()));
            self.inputs.push(region);
        }
        self.inner.input(input, message)
    }

    fn output(&mut self, output: &Output, mut message: Ztensor) -> Result<Tensor, Failure> {
        if !output.stored
            && let Some(region) = self.memory.allocate(output.size)
        {
            message.sticks_to = Some(region.extent());
            self.outputs.push((output.name, Arc::new(region)));
        }
        self.inner.output(output, message)
    }

    fn answered(&mut self, failure: Option<&Failure>) {
        if let Some(Failure::Lost(_)) = failure {
            self.memory.retire();
        }
        self.inner.answered(failure);
    }

    unsafe fn store(&mut self, output: &Output, answer: &Ztensor) -> Result<Written, Failure> {
        let Some(Contents::Shared(extent)) = &answer.contents else {
            return unsafe { self.inner.store(output, answer) };
        };
        let region = self.outputs.iter().find(|(name, _)| *name == output.name);
        let region = region.map(|(_, region)| Arc::clone(region));
        let buffer = output.buffer.cast();
        unsafe { copy_out(output.name, region.as_deref(), extent, buffer) }?;
        Ok(region.map_or(Written::Copied, Written::CopiedFrom))
    }
}

/// Arrays of the program in shared memory, if the session has such memory; held until the call is
/// over.
pub struct SharedArrays<'a> {
    memory: Option<&'a Arc<SharedMemory>>,
    regions: Vec<Region>,
}

impl<'a> SharedArrays<'a> {
    /// Starts with none.
    pub fn new(memory: Option<&'a Arc<SharedMemory>>) -> Self {
        let regions = Vec::new();
        Self { memory, regions }
    }

    /// Copies arrays that the server reads; returns false if they have to travel in messages.
    pub fn put(&mut self, arrays: &[&[u8]]) -> bool {
        let copies = arrays.iter().map(|array| self.memory?.copy(array));
        self.regions = copies.collect::<Option<_>>().unwrap_or_default();
        !self.regions.is_empty()
    }

    /// Allocates an array that the server writes; returns false if it has to travel in messages.
    pub fn reserve(&mut self, size: u64) -> bool {
        let region = self.memory.and_then(|memory| memory.allocate(size));
        self.regions = region.into_iter().collect();
        !self.regions.is_empty()
    }

    /// Returns their places in the memory.
    pub fn extents(&self) -> Vec<Extent> {
        self.regions.iter().map(Region::extent).collect()
    }

    /// Copies the array that the server wrote.
    pub unsafe fn store(&self, written: &Extent, array: *mut u8) -> Result<(), Failure> {
        unsafe { copy_out("the array", self.regions.first(), written, array) }
    }
}

/// Copies the bytes that the server wrote to a region; its answer must name this region.
unsafe fn copy_out(
    name: &str,
    region: Option<&Region>,
    written: &Extent,
    target: *mut u8,
) -> Result<(), Failure> {
    let is_inside = |region: &&Region| {
        let extent = region.extent();
        extent.offset == written.offset && written.size <= extent.size
    };
    let elsewhere = || format!("{name}: another place in shared memory than asked for");
    let region = region.filter(is_inside);
    let region = region.ok_or_else(|| Failure::Lost(elsewhere()))?;
    let bytes = &region.bytes()[..usize::try_from(written.size).unwrap_or(0)];
    unsafe { target.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    Ok(())
}
