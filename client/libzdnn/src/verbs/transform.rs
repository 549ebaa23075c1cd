// SPDX-License-Identifier: Apache-2.0
//! User data to sticks and back. Source: zDNN API Reference 1.2.0, "Data Transformation".

use std::ffi::c_void;

use bytes::Bytes;

use crate::abi::checks::{self, Reading};
use crate::abi::machine::Query;
use crate::abi::memory::{lent, memory, swap_to_little_endian};
use crate::abi::status::Status;
use crate::abi::sticks::{product, stick_bytes};
use crate::abi::{Ztensor, kind, layout};
use crate::call::operand::{Operands, Use};
use crate::call::session::Session;
use crate::call::{self, Lent, operation};
use crate::process::diagnostics;
use crate::rpc::failure::Failure;
use crate::transfer::streamed;
use crate::wire::operation_result::Value;
use crate::wire::{self, OperationResult, TensorRef, operation::Operation as Arm};

type Reads = unsafe fn(&Ztensor, &Query) -> Option<Reading>;
type Make<'a> = &'a dyn Fn(Option<TensorRef>, Vec<Bytes>) -> Arm;

unsafe extern "C" {
    fn nnpa_raise_flags(flags: u32);
}

/// Leaves the flags of the conversion raised in this thread, and returns the status.
fn finished(name: &str, answer: Result<OperationResult, Failure>) -> Status {
    match answer {
        Ok(result) => {
            unsafe { nnpa_raise_flags(result.fp_flags) };
            result.zdnn_status
        }
        Err(failure) => call::failed(name, &failure),
    }
}

/// One call of a transform: its tensor, its arrays and its message.
struct Transform<'a> {
    ztensor: *mut Ztensor,
    data: *const *const c_void,
    reads: Reads,
    make: Make<'a>,
}

impl Transform<'_> {
    unsafe fn arrays(&self, session: &Session) -> Vec<&[u8]> {
        let reading = unsafe { (self.reads)(&*self.ztensor, &session.query) };
        let Some(Reading { arrays, bytes_each }) = reading else {
            return Vec::new();
        };
        let pointers = unsafe { std::slice::from_raw_parts(self.data, arrays) }.iter();
        let views = pointers.map(|array| unsafe { memory(*array, bytes_each) });
        views.collect()
    }

    unsafe fn once(&self, session: &Session) -> Result<OperationResult, Failure> {
        let (arrays, width) = unsafe { (self.arrays(session), width(self.ztensor)) };
        let mut operands = Operands::new(session);
        let limit = session.server.limits.max_inline_bytes;
        let total: u64 = arrays.iter().map(|array| array.len() as u64).sum();
        let sticks = stick_bytes(&unsafe { (*self.ztensor).transformed() });
        let is_shared = operands.arrays.put(&arrays);
        let answer = if !arrays.is_empty() && !is_shared && total.max(sticks) > limit {
            unsafe { self.streamed(session, &mut operands, &arrays, width) }
        } else {
            let ztensor = unsafe { operands.write("ztensor", self.ztensor, Use::WHOLE) };
            let sent = if is_shared { &[][..] } else { &arrays }.iter();
            let data = sent.map(|array| unsafe { little_endian(array, width) });
            let arm = (self.make)(ztensor, data.collect());
            let message = operation(arm, &operands, Lent::default());
            session.server.execute(message)
        };
        unsafe { operands.store(answer) }
    }

    unsafe fn streamed(
        &self,
        session: &Session,
        operands: &mut Operands<'_>,
        arrays: &[&[u8]],
        width: usize,
    ) -> Result<OperationResult, Failure> {
        let usage = Use {
            stored: true,
            ..Use::WHOLE
        };
        let ztensor = unsafe { operands.write("ztensor", self.ztensor, usage) };
        if let Some(failure) = operands.failure.take() {
            return Err(failure);
        }
        let arm = (self.make)(ztensor, Vec::new());
        let message = operation(arm, operands, Lent::default());
        streamed::write_arrays(&session.server, message, arrays, width)
    }

    unsafe fn run(&self, name: &str) -> Status {
        let answer = call::in_session(|session| unsafe { self.once(session) });
        finished(name, answer.inspect(diagnostics::relay))
    }
}

/// Returns an array in little-endian order; a view if the host has that order.
unsafe fn little_endian(array: &[u8], width: usize) -> Bytes {
    if cfg!(target_endian = "little") {
        return unsafe { lent(array) };
    }
    let mut bytes = array.to_vec();
    swap_to_little_endian(&mut bytes, width);
    bytes.into()
}

/// zdnn_transform_ztensor, its arrays gathered.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nnpa_transform(
    ztensor: *mut Ztensor,
    data: *const *const c_void,
) -> Status {
    let make = &|ztensor, data| Arm::TransformZtensor(wire::TransformZtensor { ztensor, data });
    let transform = Transform {
        ztensor,
        data,
        reads: checks::transform_reads,
        make,
    };
    unsafe { transform.run("zdnn_transform_ztensor") }
}

/// zdnn_transform_ztensor_with_saturation, its array gathered.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nnpa_transform_with_saturation(
    ztensor: *mut Ztensor,
    data: *const *const c_void,
) -> Status {
    let make = &|ztensor, data| {
        let arm = wire::TransformZtensorWithSaturation { ztensor, data };
        Arm::TransformZtensorWithSaturation(arm)
    };
    let transform = Transform {
        ztensor,
        data,
        reads: checks::saturating_reads,
        make,
    };
    unsafe { transform.run("zdnn_transform_ztensor_with_saturation") }
}

/// zdnn_transform_quantized_ztensor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zdnn_transform_quantized_ztensor(
    ztensor: *mut Ztensor,
    saturation_control: bool,
    clip_min: i8,
    clip_max: i8,
    data: *const c_void,
) -> Status {
    let make = &|ztensor, data| {
        Arm::TransformQuantizedZtensor(wire::TransformQuantizedZtensor {
            ztensor,
            saturation_control: Some(saturation_control),
            clip_min: Some(clip_min.into()),
            clip_max: Some(clip_max.into()),
            data,
        })
    };
    let transform = Transform {
        ztensor,
        data: &raw const data,
        reads: checks::quantized_reads,
        make,
    };
    unsafe { transform.run("zdnn_transform_quantized_ztensor") }
}

/// Bytes of an element of the user's array.
unsafe fn width(ztensor: *const Ztensor) -> usize {
    kind::bytes(unsafe { (*ztensor).pre_transformed() }.kind)
}

/// Bytes of the array that zdnn_transform_origtensor writes.
unsafe fn array_bytes(ztensor: &Ztensor) -> u64 {
    let (desc, pre) = unsafe { (ztensor.transformed(), ztensor.pre_transformed()) };
    let both_ways = pre.layout == layout::ZDNN_4DS && pre.dim3 != 1;
    let dims = if both_ways { pre.dims() } else { desc.dims() };
    product(&dims).wrapping_mul(kind::bytes(pre.kind) as u64)
}

unsafe fn origtensor(
    session: &Session,
    ztensor: *const Ztensor,
    out_buf: *mut c_void,
) -> Result<OperationResult, Failure> {
    let size = unsafe { array_bytes(&*ztensor) };
    let mut operands = Operands::new(session);
    let fits = checks::dims_fit(&unsafe { (*ztensor).transformed() }, &session.query).is_ok();
    let is_shared = fits && operands.arrays.reserve(size);
    let large = fits && !is_shared && size > session.server.limits.max_inline_bytes;
    let usage = Use {
        stored: large,
        is_refused: !unsafe { checks::origtensor_reads(&*ztensor, &session.query) },
        ..Use::WHOLE
    };
    let input = unsafe { operands.read(ztensor, usage) };
    if let Some(failure) = operands.failure.take() {
        return Err(failure);
    }
    let arm = Arm::TransformOrigtensor(wire::TransformOrigtensor { ztensor: input });
    let message = operation(arm, &operands, Lent::default());
    let answer = match large {
        true => unsafe {
            streamed::read_array(&session.server, message, out_buf, size, width(ztensor))
        },
        false => session.server.execute(message),
    };
    let result = unsafe { operands.store(answer) }?;
    if let Some(Value::Shared(extent)) = &result.value {
        unsafe { operands.arrays.store(extent, out_buf.cast()) }?;
    }
    if let Some(Value::Data(data)) = &result.value {
        let array = unsafe { little_endian(data, width(ztensor)) };
        unsafe { out_buf.cast::<u8>().copy_from(array.as_ptr(), array.len()) };
    }
    Ok(result)
}

/// zdnn_transform_origtensor: out_buf is written whenever there is data, whatever the status.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zdnn_transform_origtensor(
    ztensor: *const Ztensor,
    out_buf: *mut c_void,
) -> Status {
    let answer = call::in_session(|session| unsafe { origtensor(session, ztensor, out_buf) });
    finished(
        "zdnn_transform_origtensor",
        answer.inspect(diagnostics::relay),
    )
}

/// zdnn_reshape_ztensor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zdnn_reshape_ztensor(src: *const Ztensor, dest: *mut Ztensor) -> Status {
    let build = |operands: &mut Operands<'_>| {
        let query = &operands.session.query;
        let is_refused = !unsafe { checks::reshape_reads(&*src, &*dest, query) };
        let usage = Use {
            is_refused,
            ..Use::WHOLE
        };
        let src = unsafe { operands.read(src, usage) };
        let dest = unsafe { operands.write("dest", dest, Use::WHOLE) };
        Arm::ReshapeZtensor(wire::ReshapeZtensor { src, dest })
    };
    let answer = unsafe { call::answer("zdnn_reshape_ztensor", &build, Lent::default()) };
    finished("zdnn_reshape_ztensor", answer)
}

/// zdnn_getrange_ztensor: min and max are written when there is a range.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zdnn_getrange_ztensor(
    ztensor: *const Ztensor,
    min: *mut f32,
    max: *mut f32,
) -> Status {
    let build = |operands: &mut Operands<'_>| {
        let is_refused = !unsafe { checks::getrange_reads(&*ztensor) };
        let usage = Use {
            is_refused,
            ..Use::default()
        };
        let ztensor = unsafe { operands.read(ztensor, usage) };
        Arm::GetrangeZtensor(wire::GetrangeZtensor { ztensor })
    };
    match unsafe { call::answer("zdnn_getrange_ztensor", &build, Lent::default()) } {
        Ok(result) => {
            if let Some(Value::Range(wire::FloatRange {
                min: Some(low),
                max: Some(high),
            })) = result.value
            {
                unsafe { (*min, *max) = (low, high) };
            }
            result.zdnn_status
        }
        Err(failure) => call::failed("zdnn_getrange_ztensor", &failure),
    }
}
