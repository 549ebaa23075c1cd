// SPDX-License-Identifier: Apache-2.0
//! The operands of one call: structures of the program as messages, and results back in its memory.

use crate::abi::memory::{byte_order, memory};
use crate::abi::sticks::stick_bytes;
use crate::abi::{Desc, Ztensor, checks};
use crate::call::sanitizer::{self, Watch};
use crate::call::session::Session;
use crate::call::shortcuts;
use crate::rpc::failure::Failure;
use crate::transfer::{Input, Output, StickTransfer};
use crate::wire::tensor_ref::Tensor;
use crate::wire::{self, OperationResult, Provenance, TensorRef};

/// What an operation says of an operand.
#[derive(Clone, Copy, Default)]
struct Use {
    /// Whether it reads the pre-transformed descriptor.
    reads_pre: bool,
    /// Whether the operand must be a tensor of the session.
    stored: bool,
}

/// The operands of one call, collected while its message is built.
pub struct Operands<'a> {
    pub session: &'a Session,
    pub misaligned: bool,
    pub failure: Option<Failure>,
    transfer: Box<dyn StickTransfer + 'a>,
    outputs: Vec<(*mut Ztensor, Output)>,
    /// The call, for a session that sanitizes.
    pub watch: Option<Watch>,
    /// Where arrays of the program lie in shared memory.
    pub shared_data: Vec<wire::Extent>,
}

fn structure(ztensor: &Ztensor, desc: &Desc, pre: Option<Desc>) -> wire::Ztensor {
    wire::Ztensor {
        pre_transformed_desc: pre.map(|desc| desc.message()),
        transformed_desc: Some(desc.message()),
        buffer_size: Some(ztensor.buffer_size),
        null_buffer: ztensor.buffer.is_null(),
        is_transformed: ztensor.is_transformed != 0,
        rec_scale: ztensor.rec_scale,
        offset: ztensor.offset,
        byte_order: byte_order(),
        ..wire::Ztensor::default()
    }
}

impl<'a> Operands<'a> {
    /// Starts with no operands.
    pub fn new(session: &'a Session) -> Self {
        let (memory, cache) = (session.memory.as_ref(), session.cache.as_deref());
        Self {
            session,
            misaligned: false,
            failure: None,
            transfer: shortcuts::transfer(&session.server, memory, cache),
            outputs: Vec::new(),
            shared_data: Vec::new(),
            watch: Watch::begin(),
        }
    }

    /// Returns an input with its sticks. Where dims or size exceed the machine's limits there may
    /// be no memory behind it, and none is read.
    ///
    /// # Safety
    /// The ztensor and its buffer are valid, as C asks.
    pub unsafe fn input(&mut self, ztensor: *const Ztensor) -> Option<TensorRef> {
        unsafe { self.read(ztensor, Use::default()) }
    }

    /// Returns an input of a function that reads the pre-transformed descriptor.
    ///
    /// # Safety
    /// As `input`.
    pub unsafe fn whole_input(&mut self, ztensor: *const Ztensor) -> Option<TensorRef> {
        let (reads_pre, stored) = (true, false);
        unsafe { self.read(ztensor, Use { reads_pre, stored }) }
    }

    /// Returns an input that is a tensor of the session, for answers that come in chunks.
    ///
    /// # Safety
    /// As `input`.
    pub unsafe fn stored_input(&mut self, ztensor: *const Ztensor) -> Option<TensorRef> {
        let (reads_pre, stored) = (true, true);
        unsafe { self.read(ztensor, Use { reads_pre, stored }) }
    }

    unsafe fn read(&mut self, ztensor: *const Ztensor, usage: Use) -> Option<TensorRef> {
        let ztensor = unsafe { &*ztensor };
        let (desc, message) = unsafe { self.describe(ztensor, usage) };
        let size = stick_bytes(&desc);
        let provenance = unsafe { self.provenance(ztensor, size, false) };
        let is_readable = checks::dims_fit(&desc, &self.session.query).is_ok();
        let tensor = if is_readable && !ztensor.buffer.is_null() {
            let input = Input {
                sticks: unsafe { memory(ztensor.buffer, size) },
                kind: desc.kind,
                stored: usage.stored,
            };
            self.transfer.input(input, message)
        } else {
            Ok(Tensor::InlineZtensor(message))
        };
        self.reference(tensor, provenance)
    }

    /// Copies the structure as it stands at this call.
    unsafe fn describe(&mut self, ztensor: &Ztensor, usage: Use) -> (Desc, wire::Ztensor) {
        let desc = unsafe { ztensor.transformed() };
        let pre = usage
            .reads_pre
            .then(|| unsafe { ztensor.pre_transformed() });
        self.misaligned |= ztensor.is_misaligned();
        (desc, structure(ztensor, &desc, pre))
    }

    /// Returns what a session that sanitizes learns of an operand's memory.
    unsafe fn provenance(&self, ztensor: &Ztensor, size: u64, writes: bool) -> Option<Provenance> {
        let watch = self.watch.as_ref()?;
        Some(unsafe { watch.operand(ztensor.buffer, size, writes) })
    }

    fn reference(
        &mut self,
        tensor: Result<Tensor, Failure>,
        provenance: Option<Provenance>,
    ) -> Option<TensorRef> {
        match tensor {
            Ok(tensor) => Some(TensorRef {
                provenance,
                tensor: Some(tensor),
            }),
            Err(failure) => {
                self.failure.get_or_insert(failure);
                None
            }
        }
    }

    /// Returns an output without sticks; they come back in the answer.
    ///
    /// # Safety
    /// As `input`.
    pub unsafe fn output(
        &mut self,
        name: &'static str,
        ztensor: *mut Ztensor,
    ) -> Option<TensorRef> {
        unsafe { self.write(name, ztensor, Use::default()) }
    }

    /// Returns an output of a function that reads the pre-transformed descriptor.
    ///
    /// # Safety
    /// As `input`.
    pub unsafe fn whole_output(
        &mut self,
        name: &'static str,
        ztensor: *mut Ztensor,
    ) -> Option<TensorRef> {
        let (reads_pre, stored) = (true, false);
        unsafe { self.write(name, ztensor, Use { reads_pre, stored }) }
    }

    /// Returns an output that is a tensor of the session, for arrays that go in chunks.
    ///
    /// # Safety
    /// As `input`.
    pub unsafe fn stored_output(
        &mut self,
        name: &'static str,
        ztensor: *mut Ztensor,
    ) -> Option<TensorRef> {
        let (reads_pre, stored) = (true, true);
        unsafe { self.write(name, ztensor, Use { reads_pre, stored }) }
    }

    unsafe fn write(
        &mut self,
        name: &'static str,
        target: *mut Ztensor,
        usage: Use,
    ) -> Option<TensorRef> {
        let ztensor = unsafe { &*target };
        let (desc, mut message) = unsafe { self.describe(ztensor, usage) };
        let output = Output {
            name,
            buffer: ztensor.buffer,
            size: stick_bytes(&desc),
            kind: desc.kind,
            stored: usage.stored,
        };
        let provenance = unsafe { self.provenance(ztensor, output.size, true) };
        let fits = checks::dims_fit(&desc, &self.session.query).is_ok();
        let is_large = output.size > self.session.server.limits.max_inline_bytes;
        message.null_buffer |= is_large && !fits;
        let tensor = if fits && !output.buffer.is_null() {
            self.transfer.output(&output, message)
        } else {
            Ok(Tensor::InlineZtensor(message))
        };
        self.outputs.push((target, output));
        self.reference(tensor, provenance)
    }

    /// Puts arrays of the program into shared memory; returns whether all of them are in it.
    pub fn share(&mut self, arrays: &[&[u8]]) -> bool {
        self.shared_data = self.transfer.share_arrays(arrays).unwrap_or_default();
        !self.shared_data.is_empty()
    }

    /// Allocates shared memory for an array that the server writes; returns whether there is some.
    pub fn share_room(&mut self, size: u64) -> bool {
        self.shared_data = self.transfer.share_array_room(size).into_iter().collect();
        !self.shared_data.is_empty()
    }

    /// Copies an array out of shared memory.
    ///
    /// # Safety
    /// The array is valid for the bytes that the server wrote.
    pub unsafe fn store_shared(
        &self,
        written: &wire::Extent,
        array: *mut u8,
    ) -> Result<(), Failure> {
        unsafe { self.transfer.store_array(written, array) }
    }

    /// Copies what the operation wrote into the program's memory, and the states.
    ///
    /// # Safety
    /// The outputs' structures and buffers are still valid.
    pub unsafe fn store(
        &mut self,
        answer: Result<OperationResult, Failure>,
    ) -> Result<OperationResult, Failure> {
        self.transfer.answered(answer.as_ref().err());
        let result = answer?;
        for info in &result.outputs {
            let output = self
                .outputs
                .iter()
                .find(|(_, output)| output.name == info.operand);
            let (Some((ztensor, output)), Some(answer)) = (output, &info.ztensor) else {
                continue;
            };
            unsafe { self.transfer.store(output, answer) }?;
            if self.watch.is_some() {
                sanitizer::written(output.buffer);
            }
            unsafe { (**ztensor).is_transformed = u8::from(answer.is_transformed) };
        }
        Ok(result)
    }
}
