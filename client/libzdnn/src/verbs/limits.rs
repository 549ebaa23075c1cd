// SPDX-License-Identifier: Apache-2.0
//! Largest and smallest values of types. Source: zDNN API Reference 1.2.0, zdnn_get_max_limit.

use std::ffi::c_void;

use crate::abi::kind;
use crate::abi::status::{self, Status};
use crate::process::diagnostics;

/// Bits of (transformed type, pre-transformed type, maximum, minimum). BFLOAT's maximum is the
/// truncated DLFLOAT16 one.
const LIMITS: [(u32, u32, u32, u32); 8] = [
    (kind::ZDNN_DLFLOAT16, kind::FP32, 0x4FFF_8000, 0xCFFF_8000),
    (kind::ZDNN_DLFLOAT16, kind::FP16, 0x7BFF, 0xFBFF),
    (kind::ZDNN_DLFLOAT16, kind::BFLOAT, 0x4FFF, 0xCFFF),
    (kind::ZDNN_BINARY_INT8, kind::FP32, 0x42FE_0000, 0xC300_0000),
    (kind::ZDNN_BINARY_INT8, kind::FP16, 0x57F0, 0xD800),
    (kind::ZDNN_BINARY_INT8, kind::BFLOAT, 0x42FE, 0xC300),
    (kind::ZDNN_BINARY_INT8, kind::INT8, 0x7F, 0x80),
    (
        kind::ZDNN_BINARY_INT32,
        kind::INT32,
        0x7FFF_FFFF,
        0x8000_0000,
    ),
];

#[allow(clippy::cast_possible_truncation)]
unsafe fn store(kind: u32, bits: u32, limit: *mut c_void) {
    unsafe {
        match kind::bytes(kind) {
            4 => limit.cast::<u32>().write_unaligned(bits),
            2 => limit.cast::<u16>().write_unaligned(bits as u16),
            _ => limit.cast::<u8>().write(bits as u8),
        }
    }
}

/// Writes the maximum or the minimum of two types, in the pre-transformed one.
unsafe fn write_limit(name: &str, types: [u32; 2], is_most: bool, limit: *mut c_void) -> Status {
    let mut rows = LIMITS.iter();
    let Some((_, kind, most, least)) = rows.find(|row| [row.0, row.1] == types) else {
        return diagnostics::log_status(name, status::ZDNN_INVALID_TYPE);
    };
    unsafe { store(*kind, if is_most { *most } else { *least }, limit) };
    status::ZDNN_OK
}

/// zdnn_get_max_limit: writes the limit in the pre-transformed type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zdnn_get_max_limit(
    transformed_type: u32,
    pre_transformed_type: u32,
    limit: *mut c_void,
) -> Status {
    let types = [transformed_type, pre_transformed_type];
    unsafe { write_limit("zdnn_get_max_limit", types, true, limit) }
}

/// zdnn_get_min_limit: as zdnn_get_max_limit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zdnn_get_min_limit(
    transformed_type: u32,
    pre_transformed_type: u32,
    limit: *mut c_void,
) -> Status {
    let types = [transformed_type, pre_transformed_type];
    unsafe { write_limit("zdnn_get_min_limit", types, false, limit) }
}
