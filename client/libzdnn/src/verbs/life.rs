// SPDX-License-Identifier: Apache-2.0
//! The life of a ztensor: structures and memory of the program.
//! Source: zDNN API Reference 1.2.0, "Support Functions".

use std::ffi::c_void;
use std::mem::size_of;

use crate::abi::checks;
use crate::abi::status::{self, Status};
use crate::abi::sticks::stick_bytes;
use crate::abi::{Desc, PAGE, Ztensor};
use crate::call::faults::{self, Verdict};
use crate::call::sanitizer::{self, Freed, Watch};
use crate::call::{self, process_session};
use crate::process::diagnostics;
use crate::wire::operation::Operation as Arm;
use crate::wire::{self, tensor_ref::Tensor};

/// Allocates zeroed memory on a page boundary; malloc's pointer stands in the word before it.
fn allocate(bytes: u64) -> Option<*mut c_void> {
    let size = usize::try_from(bytes).ok()?;
    let size = size.checked_add(PAGE + size_of::<*mut c_void>())?;
    let raw = unsafe { libc::calloc(size, 1) };
    if raw.is_null() || bytes == 0 {
        unsafe { libc::free(raw) };
        return None;
    }
    let first = raw as usize + size_of::<*mut c_void>();
    let sticks = raw
        .cast::<u8>()
        .wrapping_add(first.next_multiple_of(PAGE) - raw as usize);
    unsafe { sticks.cast::<*mut c_void>().sub(1).write(raw) };
    Some(sticks.cast())
}

unsafe fn allocated(name: &'static str, ztensor: *mut Ztensor) -> Status {
    let ztensor = unsafe { &mut *ztensor };
    let desc = unsafe { ztensor.transformed() };
    if let Err(status) = checks::allocatable(&desc) {
        return diagnostics::log_status(name, status);
    }
    let session = match process_session::session() {
        Ok(session) => session,
        Err(failure) => return call::failed(name, &failure),
    };
    if let Err(status) = checks::dims_fit(&desc, &session.query) {
        return diagnostics::log_status(name, status);
    }
    let injected = match faults::of_allocation(name, &session, &desc) {
        Verdict::Go(status) => status,
        Verdict::Refuse(status) => {
            if status == status::ZDNN_ALLOCATION_FAILURE {
                ztensor.buffer = std::ptr::null_mut();
            }
            return status;
        }
    };
    let bytes = stick_bytes(&desc);
    let Some(sticks) = allocate(bytes) else {
        ztensor.buffer = std::ptr::null_mut();
        return diagnostics::log_status(name, status::ZDNN_ALLOCATION_FAILURE);
    };
    if sanitizer::enabled() {
        unsafe { sanitizer::allocated(sticks, bytes, name) };
    }
    ztensor.buffer = sticks;
    ztensor.buffer_size = bytes;
    injected
}

/// zdnn_init_ztensor: leaves buffer and buffer_size unchanged.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zdnn_init_ztensor(
    pre_tfrmd_desc: *mut Desc,
    tfrmd_desc: *mut Desc,
    output: *mut Ztensor,
) {
    let output = unsafe { &mut *output };
    *output = Ztensor {
        pre_transformed_desc: pre_tfrmd_desc,
        transformed_desc: tfrmd_desc,
        buffer_size: output.buffer_size,
        buffer: output.buffer,
        ..Ztensor::ZERO
    };
}

/// zdnn_init_quantized_ztensor: keeps the FP32 reciprocal of the scale, 0 for 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zdnn_init_quantized_ztensor(
    pre_tfrmd_desc: *mut Desc,
    tfrmd_desc: *mut Desc,
    scale: f32,
    offset: f32,
    output: *mut Ztensor,
) {
    unsafe {
        zdnn_init_ztensor(pre_tfrmd_desc, tfrmd_desc, output);
        (*output).rec_scale = if scale == 0.0 { scale } else { 1.0 / scale };
        (*output).offset = offset;
    }
}

/// zdnn_init_ztensor_with_malloc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zdnn_init_ztensor_with_malloc(
    pre_tfrmd_desc: *mut Desc,
    tfrmd_desc: *mut Desc,
    output: *mut Ztensor,
) -> Status {
    unsafe {
        zdnn_init_ztensor(pre_tfrmd_desc, tfrmd_desc, output);
        allocated("zdnn_init_ztensor_with_malloc", output)
    }
}

/// zdnn_init_quantized_ztensor_with_malloc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zdnn_init_quantized_ztensor_with_malloc(
    pre_tfrmd_desc: *mut Desc,
    tfrmd_desc: *mut Desc,
    scale: f32,
    offset: f32,
    output: *mut Ztensor,
) -> Status {
    unsafe {
        zdnn_init_quantized_ztensor(pre_tfrmd_desc, tfrmd_desc, scale, offset, output);
        allocated("zdnn_init_quantized_ztensor_with_malloc", output)
    }
}

/// zdnn_allochelper_ztensor: zeroed sticks on a 4 KiB boundary.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zdnn_allochelper_ztensor(ztensor: *mut Ztensor) -> Status {
    unsafe { allocated("zdnn_allochelper_ztensor", ztensor) }
}

/// zdnn_free_ztensor_buffer: frees the buffer that allochelper allocated; leaves the structure
/// unchanged.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zdnn_free_ztensor_buffer(ztensor: *const Ztensor) -> Status {
    let sticks = unsafe { (*ztensor).buffer };
    if sticks.is_null() {
        return diagnostics::log_status("zdnn_free_ztensor_buffer", status::ZDNN_INVALID_BUFFER);
    }
    let verdict = faults::of_free("zdnn_free_ztensor_buffer");
    if let Verdict::Refuse(status) = verdict {
        return status;
    }
    if sanitizer::enabled() {
        match unsafe { sanitizer::freed(sticks) } {
            Freed::Unknown => {}
            Freed::Kept => return verdict.status(),
            Freed::Twice(provenance) => {
                freed_twice(provenance);
                return verdict.status();
            }
        }
    }
    unsafe { libc::free(sticks.cast::<*mut c_void>().sub(1).read()) };
    verdict.status()
}

/// Has the server report that a buffer is freed a second time; it stays freed.
fn freed_twice(provenance: wire::Provenance) {
    let ztensor = Some(wire::TensorRef {
        tensor: Some(Tensor::InlineZtensor(wire::Ztensor {
            transformed_desc: Some(Desc::default().message()),
            null_buffer: true,
            ..wire::Ztensor::default()
        })),
        provenance: Some(provenance),
    });
    let free = wire::FreeZtensorBuffer { ztensor };
    let watch = Watch::begin();
    let answer = call::in_session(|session| {
        session.server.execute(wire::Operation {
            operation: Some(Arm::FreeZtensorBuffer(free.clone())),
            site: Watch::site_of(watch.as_ref()),
            housekeeping: true,
            ..wire::Operation::default()
        })
    });
    if let Ok(result) = answer {
        diagnostics::report(&result);
    }
}

/// zdnn_is_quantized_ztensor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zdnn_is_quantized_ztensor(ztensor: *const Ztensor) -> bool {
    unsafe { (*ztensor).rec_scale != 0.0 }
}

/// zdnn_reset_ztensor: data, scale and offset stay.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zdnn_reset_ztensor(ztensor: *mut Ztensor) {
    unsafe { (*ztensor).is_transformed = 0 };
}
