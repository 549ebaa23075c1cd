// SPDX-License-Identifier: Apache-2.0
//! Descriptors of sticks, derived from the user's.
//! Source: zDNN API Reference 1.2.0, "Data Transformation" and "Deriving dimensions".

use crate::abi::status::{self, Status};
use crate::abi::sticks::{gates, padded, rank, stick_bytes};
use crate::abi::{Desc, format, kind, layout};
use crate::process::diagnostics;

type Dims = [u32; 4];

const USAGE_WEIGHTS: u32 = 0;
const USAGE_HIDDEN_WEIGHTS: u32 = 1;
const USAGE_BIASES: u32 = 2;
const USAGE_HIDDEN_BIASES: u32 = 3;

/// Places the dims of the layouts that may be quantized.
fn plain_dims(pre: &Desc) -> Option<Dims> {
    let [d4, d3, d2, d1] = pre.dims();
    match pre.layout {
        layout::ZDNN_1D => Some([1, 1, 1, d1]),
        layout::ZDNN_2D => Some([1, 1, d2, d1]),
        layout::ZDNN_2DS => Some([d2, 1, 1, d1]),
        layout::ZDNN_3D => Some([1, d3, d2, d1]),
        layout::ZDNN_3DS => Some([d3, 1, d2, d1]),
        layout::ZDNN_4D | layout::ZDNN_NHWC => Some([d4, d3, d2, d1]),
        _ => None,
    }
}

/// Places the dims of every layout that has a transformed form.
fn transformed_dims(pre: &Desc) -> Option<Dims> {
    let [d4, d3, d2, d1] = pre.dims();
    match pre.layout {
        layout::ZDNN_NCHW => Some([d4, d2, d1, d3]),
        layout::ZDNN_HWCK => Some([d4, d3, d2, d1]),
        layout::ZDNN_4DS if d3 == 1 => Some([d4, 1, d2, d1]),
        layout::ZDNN_4DS => Some([d4, 1, d2, d3.wrapping_mul(padded(d1))]),
        _ => plain_dims(pre),
    }
}

fn transformed(pre: &Desc, target: &mut Desc) -> Status {
    let Some(dims) = transformed_dims(pre) else {
        return status::ZDNN_INVALID_LAYOUT;
    };
    (target.layout, target.format) = match pre.layout {
        layout::ZDNN_HWCK => (layout::ZDNN_HWCK, format::ZDNN_FORMAT_4DKERNEL),
        _ => (layout::ZDNN_NHWC, format::ZDNN_FORMAT_4DFEATURE),
    };
    *target = target.with_dims(dims);
    target.kind = match pre.kind {
        kind::INT32 => kind::ZDNN_BINARY_INT32,
        float if kind::FLOATS.contains(&float) => kind::ZDNN_DLFLOAT16,
        _ => return status::ZDNN_INVALID_TYPE,
    };
    status::ZDNN_OK
}

fn quantized(pre: &Desc, transform_type: u32, target: &mut Desc) -> Status {
    let Some(dims) = plain_dims(pre) else {
        return status::ZDNN_INVALID_LAYOUT;
    };
    if !kind::FLOATS.contains(&pre.kind) && pre.kind != kind::INT8 {
        return status::ZDNN_INVALID_TYPE;
    }
    (target.format, target.kind) = match transform_type {
        0 => (format::ZDNN_FORMAT_4DFEATURE, kind::ZDNN_DLFLOAT16),
        1 => (format::ZDNN_FORMAT_4DFEATURE, kind::ZDNN_BINARY_INT8),
        2 => (format::ZDNN_FORMAT_4DWEIGHTS, kind::ZDNN_BINARY_INT8),
        _ => return status::ZDNN_INVALID_TRANSFORM_TYPE,
    };
    target.layout = layout::ZDNN_NHWC;
    *target = target.with_dims(dims);
    status::ZDNN_OK
}

fn concatenated(pre: &Desc, info: u32, target: &mut Desc) -> Status {
    let (rnn, previous, usage) = (info >> 24, info >> 16 & 0xFF, info >> 8 & 0xFF);
    let halves = usage == USAGE_WEIGHTS && previous == 1;
    if !kind::FLOATS.contains(&pre.kind) {
        return status::ZDNN_INVALID_TYPE;
    }
    if halves && !pre.dim2.is_multiple_of(2) {
        return status::ZDNN_INVALID_SHAPE;
    }
    let (required, stack, rows) = match usage {
        USAGE_BIASES | USAGE_HIDDEN_BIASES => (layout::ZDNN_2DS, pre.dim2, 1),
        USAGE_WEIGHTS if halves => {
            let rows = padded(pre.dim2 / 2).wrapping_mul(2);
            (layout::ZDNN_3DS, pre.dim3, rows)
        }
        USAGE_WEIGHTS | USAGE_HIDDEN_WEIGHTS => (layout::ZDNN_3DS, pre.dim3, pre.dim2),
        _ => return status::ZDNN_INVALID_CONCAT_INFO,
    };
    if pre.layout != required {
        return status::ZDNN_INVALID_LAYOUT;
    }
    let (gates, layout) = match (rnn, halves) {
        (0, false) => (4, layout::ZDNN_FICO),
        (0, true) => (4, layout::ZDNN_BIDIR_FICO),
        (1, false) => (3, layout::ZDNN_ZRH),
        (1, true) => (3, layout::ZDNN_BIDIR_ZRH),
        _ => return status::ZDNN_INVALID_CONCAT_INFO,
    };
    (target.layout, target.format, target.kind) =
        (layout, format::ZDNN_FORMAT_4DFEATURE, kind::ZDNN_DLFLOAT16);
    *target = target.with_dims([stack, 1, rows, padded(pre.dim1).wrapping_mul(gates)]);
    status::ZDNN_OK
}

/// Returns how many dims the variadic zdnn_init_pre_transformed_desc reads.
#[unsafe(no_mangle)]
pub extern "C" fn nnpa_layout_rank(layout: u32) -> i32 {
    i32::try_from(rank(layout)).unwrap_or(0)
}

/// Returns how many arrays the variadic zdnn_transform_ztensor reads; 0 for an invalid layout.
#[unsafe(no_mangle)]
pub extern "C" fn nnpa_layout_arrays(layout: u32) -> i32 {
    match layout {
        layout::ZDNN_NHWC | layout::ZDNN_HWCK => 1,
        _ => i32::try_from(gates(layout)).unwrap_or(0),
    }
}

/// zdnn_generate_transformed_desc: layout is checked before type, which is written last.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zdnn_generate_transformed_desc(
    pre_tfrmd_desc: *const Desc,
    tfrmd_desc: *mut Desc,
) -> Status {
    let (pre, target) = unsafe { (*pre_tfrmd_desc, &mut *tfrmd_desc) };
    diagnostics::log_status("zdnn_generate_transformed_desc", transformed(&pre, target))
}

/// zdnn_generate_quantized_transformed_desc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zdnn_generate_quantized_transformed_desc(
    pre_tfrmd_desc: *const Desc,
    transform_type: u32,
    tfrmd_desc: *mut Desc,
) -> Status {
    let (pre, target) = unsafe { (*pre_tfrmd_desc, &mut *tfrmd_desc) };
    let status = quantized(&pre, transform_type, target);
    diagnostics::log_status("zdnn_generate_quantized_transformed_desc", status)
}

/// zdnn_generate_transformed_desc_concatenated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zdnn_generate_transformed_desc_concatenated(
    pre_tfrmd_desc: *const Desc,
    info: u32,
    tfrmd_desc: *mut Desc,
) -> Status {
    let (pre, target) = unsafe { (*pre_tfrmd_desc, &mut *tfrmd_desc) };
    let status = concatenated(&pre, info, target);
    diagnostics::log_status("zdnn_generate_transformed_desc_concatenated", status)
}

/// zdnn_getsize_ztensor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zdnn_getsize_ztensor(tfrmd_desc: *const Desc) -> u64 {
    stick_bytes(unsafe { &*tfrmd_desc })
}
