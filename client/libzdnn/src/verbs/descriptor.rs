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
        layout::ONE_D => Some([1, 1, 1, d1]),
        layout::TWO_D => Some([1, 1, d2, d1]),
        layout::TWO_DS => Some([d2, 1, 1, d1]),
        layout::THREE_D => Some([1, d3, d2, d1]),
        layout::THREE_DS => Some([d3, 1, d2, d1]),
        layout::FOUR_D | layout::NHWC => Some([d4, d3, d2, d1]),
        _ => None,
    }
}

/// Places the dims of every layout that has a transformed form.
fn transformed_dims(pre: &Desc) -> Option<Dims> {
    let [d4, d3, d2, d1] = pre.dims();
    match pre.layout {
        layout::NCHW => Some([d4, d2, d1, d3]),
        layout::HWCK => Some([d4, d3, d2, d1]),
        layout::FOUR_DS if d3 == 1 => Some([d4, 1, d2, d1]),
        layout::FOUR_DS => Some([d4, 1, d2, d3.wrapping_mul(padded(d1))]),
        _ => plain_dims(pre),
    }
}

fn set_dims(desc: &mut Desc, dims: Dims) {
    [desc.dim4, desc.dim3, desc.dim2, desc.dim1] = dims;
}

fn transformed(pre: &Desc, target: &mut Desc) -> Status {
    let Some(dims) = transformed_dims(pre) else {
        return status::INVALID_LAYOUT;
    };
    let kernel = pre.layout == layout::HWCK;
    target.layout = if kernel { layout::HWCK } else { layout::NHWC };
    target.format = if kernel {
        format::KERNEL
    } else {
        format::FEATURE
    };
    set_dims(target, dims);
    target.kind = match pre.kind {
        kind::INT32 => kind::BINARY_INT32,
        float if kind::FLOATS.contains(&float) => kind::DLFLOAT16,
        _ => return status::INVALID_TYPE,
    };
    status::OK
}

fn quantized(pre: &Desc, transform_type: u32, target: &mut Desc) -> Status {
    let Some(dims) = plain_dims(pre) else {
        return status::INVALID_LAYOUT;
    };
    if !kind::FLOATS.contains(&pre.kind) && pre.kind != kind::INT8 {
        return status::INVALID_TYPE;
    }
    (target.format, target.kind) = match transform_type {
        0 => (format::FEATURE, kind::DLFLOAT16),
        1 => (format::FEATURE, kind::BINARY_INT8),
        2 => (format::WEIGHTS, kind::BINARY_INT8),
        _ => return status::INVALID_TRANSFORM_TYPE,
    };
    target.layout = layout::NHWC;
    set_dims(target, dims);
    status::OK
}

fn concatenated(pre: &Desc, info: u32, target: &mut Desc) -> Status {
    let (rnn, previous, usage) = (info >> 24, info >> 16 & 0xFF, info >> 8 & 0xFF);
    let halves = usage == USAGE_WEIGHTS && previous == 1;
    if !kind::FLOATS.contains(&pre.kind) {
        return status::INVALID_TYPE;
    }
    if halves && !pre.dim2.is_multiple_of(2) {
        return status::INVALID_SHAPE;
    }
    let (required, stack, rows) = match usage {
        USAGE_BIASES | USAGE_HIDDEN_BIASES => (layout::TWO_DS, pre.dim2, 1),
        USAGE_WEIGHTS if halves => {
            let rows = padded(pre.dim2 / 2).wrapping_mul(2);
            (layout::THREE_DS, pre.dim3, rows)
        }
        USAGE_WEIGHTS | USAGE_HIDDEN_WEIGHTS => (layout::THREE_DS, pre.dim3, pre.dim2),
        _ => return status::INVALID_CONCAT_INFO,
    };
    if pre.layout != required {
        return status::INVALID_LAYOUT;
    }
    let (gates, layout) = match (rnn, halves) {
        (0, false) => (4, layout::FICO),
        (0, true) => (4, layout::BIDIR_FICO),
        (1, false) => (3, layout::ZRH),
        (1, true) => (3, layout::BIDIR_ZRH),
        _ => return status::INVALID_CONCAT_INFO,
    };
    (target.layout, target.format, target.kind) = (layout, format::FEATURE, kind::DLFLOAT16);
    set_dims(
        target,
        [stack, 1, rows, padded(pre.dim1).wrapping_mul(gates)],
    );
    status::OK
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
        layout::NHWC | layout::HWCK => 1,
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
