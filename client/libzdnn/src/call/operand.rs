// SPDX-License-Identifier: Apache-2.0
//! The operands of one call: structures of the program as messages, and results back in its memory.

use crate::abi::memory::{byte_order, memory};
use crate::abi::sticks::{padded, stick_bytes, user_dims};
use crate::abi::{Desc, Ztensor, checks, format, kind, layout};
use crate::call::sanitizer::{self, Watch};
use crate::call::session::Session;
use crate::call::shortcuts;
use crate::rpc::failure::Failure;
use crate::transfer::shared::SharedArrays;
use crate::transfer::{Input, Output, StickTransfer};
use crate::wire::tensor_ref::Tensor;
use crate::wire::{self, OperationResult, Provenance, TensorRef};

/// A layer of both directions, `lstm_gru_direction`.
const BIDIR: u32 = 2;

/// How an operation uses an operand.
#[derive(Clone, Copy, Default)]
pub struct Use {
    /// Whether it reads the pre-transformed descriptor.
    pub reads_pre: bool,
    /// Whether the operand must be a tensor of the session, because its arrays travel in chunks.
    pub stored: bool,
    /// Whether the call is refused before it reads sticks: zeros travel in their place.
    pub is_refused: bool,
}

impl Use {
    /// The use by a function that reads the pre-transformed descriptor.
    pub const WHOLE: Self = Self {
        reads_pre: true,
        stored: false,
        is_refused: false,
    };
}

/// The operands that determine the outputs of a recurrent layer.
pub struct Layer {
    pub input: *const Ztensor,
    pub h0: *const Ztensor,
    pub direction: u32,
}

impl Layer {
    /// Returns the transformed descriptor of an output: of all timesteps if its dim4 is the
    /// input's, else of the last timestep.
    unsafe fn output(&self, desc: &Desc) -> Desc {
        let (input, h0) = unsafe { ((*self.input).transformed(), (*self.h0).transformed()) };
        let is_of_all = desc.dim4 == input.dim4;
        Desc {
            layout: layout::ZDNN_NHWC,
            format: format::ZDNN_FORMAT_4DFEATURE,
            kind: kind::ZDNN_DLFLOAT16,
            dim4: if is_of_all { input.dim4 } else { 1 },
            dim3: 1,
            dim2: input.dim2,
            dim1: match self.direction {
                BIDIR => padded(h0.dim1).wrapping_mul(2),
                _ => h0.dim1,
            },
        }
    }
}

/// The operands of one call, collected while its message is built.
pub struct Operands<'a> {
    pub session: &'a Session,
    pub misaligned: bool,
    pub failure: Option<Failure>,
    /// The operands that are NULL.
    pub skipped: Vec<&'static str>,
    transfer: Box<dyn StickTransfer + 'a>,
    outputs: Vec<(*mut Ztensor, Output)>,
    /// The call, for a session that sanitizes.
    pub watch: Option<Watch>,
    pub arrays: SharedArrays<'a>,
    /// Zeros in the place of sticks that may not be read.
    blanks: Vec<Vec<u8>>,
}

/// Returns the message of a user's descriptor, without the fields that
/// zdnn_init_pre_transformed_desc leaves unset.
fn user_message(pre: &Desc) -> wire::TensorDesc {
    wire::TensorDesc {
        format: None,
        ..pre.with_dims(user_dims(pre)).message()
    }
}

fn structure(ztensor: &Ztensor, desc: &Desc, pre: Option<Desc>) -> wire::Ztensor {
    wire::Ztensor {
        pre_transformed_desc: pre.map(|pre| user_message(&pre)),
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
            skipped: Vec::new(),
            transfer: shortcuts::transfer(&session.server, memory, cache),
            outputs: Vec::new(),
            arrays: SharedArrays::new(memory),
            blanks: Vec::new(),
            watch: Watch::begin(),
        }
    }

    /// Returns an input with its sticks. If its dims or size exceed the machine's limits, its
    /// memory may be missing and is not read. Without precheck it may be NULL.
    pub unsafe fn input(
        &mut self,
        name: &'static str,
        ztensor: *const Ztensor,
    ) -> Option<TensorRef> {
        if self.is_skipped(ztensor) {
            return self.skip(name);
        }
        unsafe { self.read(ztensor, Use::default()) }
    }

    /// Returns whether the library leaves an operand out of the parameter block: there it tests
    /// pointers for NULL, in precheck it follows them without a test.
    fn is_skipped(&self, ztensor: *const Ztensor) -> bool {
        ztensor.is_null() && !self.session.prechecks
    }

    /// Returns the tensor that the machine sees for NULL: a descriptor of zeros.
    fn skip(&mut self, name: &'static str) -> Option<TensorRef> {
        self.skipped.push(name);
        let message = structure(&Ztensor::ZERO, &Desc::default(), None);
        self.reference(Ok(Tensor::InlineZtensor(message)), None)
    }

    /// Returns an input that an operation uses as `usage` says.
    pub unsafe fn read(&mut self, ztensor: *const Ztensor, usage: Use) -> Option<TensorRef> {
        let ztensor = unsafe { &*ztensor };
        let (desc, message) = unsafe { self.describe(ztensor, usage) };
        let size = stick_bytes(&desc);
        let provenance = unsafe { self.provenance(ztensor, size, false) };
        let is_readable = checks::dims_fit(&desc, &self.session.query).is_ok();
        let tensor = if is_readable && !ztensor.buffer.is_null() {
            let input = Input {
                sticks: unsafe { self.sticks(ztensor, size, usage) },
                kind: desc.kind,
                stored: usage.stored,
            };
            self.transfer.input(input, message)
        } else {
            Ok(Tensor::InlineZtensor(message))
        };
        self.reference(tensor, provenance)
    }

    /// Views the sticks of an input, or zeros of the same size if the call is refused before it
    /// reads them.
    unsafe fn sticks<'b>(&mut self, ztensor: &Ztensor, size: u64, usage: Use) -> &'b [u8] {
        let mut address = ztensor.buffer.cast_const();
        if usage.is_refused {
            let blank = vec![0; usize::try_from(size).unwrap_or(0)];
            address = blank.as_ptr().cast();
            self.blanks.push(blank);
        }
        unsafe { memory(address, size) }
    }

    /// Copies the structure as it stands at this call.
    unsafe fn describe(&mut self, ztensor: &Ztensor, usage: Use) -> (Desc, wire::Ztensor) {
        let desc = unsafe { ztensor.transformed() };
        let reads_pre = usage.reads_pre;
        let pre = reads_pre.then(|| unsafe { ztensor.pre_transformed() });
        self.misaligned |= ztensor.is_misaligned();
        (desc, structure(ztensor, &desc, pre))
    }

    /// Returns the provenance of an operand's memory, for a session that sanitizes.
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
    pub unsafe fn output(
        &mut self,
        name: &'static str,
        ztensor: *mut Ztensor,
    ) -> Option<TensorRef> {
        if self.is_skipped(ztensor) {
            return self.skip(name);
        }
        unsafe { self.write(name, ztensor, Use::default()) }
    }

    /// Returns an output of a recurrent layer. The library reads its buffer, and whether dim4 of
    /// `hn_output` equals the input's; with precheck it reads all fields but dim4 of `cf_output`.
    pub unsafe fn layer_output(
        &mut self,
        name: &'static str,
        target: *mut Ztensor,
        layer: &Layer,
    ) -> Option<TensorRef> {
        let mut desc = unsafe { (*target).transformed() };
        if name == "cf_output" {
            desc.dim4 = 1;
        }
        if !self.session.prechecks {
            desc = unsafe { layer.output(&desc) };
        }
        let mut ztensor = unsafe { target.read() };
        ztensor.transformed_desc = &raw mut desc;
        unsafe { self.write_as(name, target, &ztensor, Use::default()) }
    }

    /// Returns an output that an operation uses as `usage` says.
    pub unsafe fn write(
        &mut self,
        name: &'static str,
        target: *mut Ztensor,
        usage: Use,
    ) -> Option<TensorRef> {
        unsafe { self.write_as(name, target, &*target, usage) }
    }

    /// Returns an output with the structure of `ztensor`.
    unsafe fn write_as(
        &mut self,
        name: &'static str,
        target: *mut Ztensor,
        ztensor: &Ztensor,
        usage: Use,
    ) -> Option<TensorRef> {
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

    /// Copies the outputs of the operation, and their states, into the program's memory.
    pub unsafe fn store(
        &mut self,
        answer: Result<OperationResult, Failure>,
    ) -> Result<OperationResult, Failure> {
        self.transfer.answered(answer.as_ref().err());
        let result = answer?;
        for info in &result.outputs {
            let mut outputs = self.outputs.iter();
            let output = outputs.find(|(_, output)| output.name == info.operand);
            let (Some((ztensor, output)), Some(answer)) = (output, &info.ztensor) else {
                continue;
            };
            unsafe { self.transfer.store(output, answer) }?;
            if self.watch.is_some() {
                sanitizer::written(output.buffer, output.size);
            }
            unsafe { (**ztensor).is_transformed = u8::from(answer.is_transformed) };
        }
        Ok(result)
    }
}
