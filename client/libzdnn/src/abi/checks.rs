// SPDX-License-Identifier: Apache-2.0
//! The library's checks that run before memory of the program is read or allocated.
//! Source: zDNN API Reference 1.2.0, "General zTensor Requirements"; order as in the library.

use crate::abi::machine::Query;
use crate::abi::status::{self, Status};
use crate::abi::sticks::{gates, padded, product, rank, stick_bytes};
use crate::abi::{Desc, Ztensor, format, kind, layout};

/// The arrays that a transform reads once its checks have passed.
#[derive(Clone, Copy)]
pub struct Reading {
    pub arrays: usize,
    pub bytes_each: u64,
}

type Checked = Result<(), Status>;

fn require(holds: bool, status: Status) -> Checked {
    if holds { Ok(()) } else { Err(status) }
}

fn is_feature_layout(layout: u32) -> bool {
    layout == layout::ZDNN_NHWC || gates(layout) != 0
}

/// Returns whether a user's array may have the layout, kernels excepted.
fn is_plain_layout(layout: u32) -> bool {
    rank(layout) != 0 && layout != layout::ZDNN_HWCK
}

/// Checks dims, dim4 first, and the size in bytes, against the machine's limits.
pub fn dims_fit(desc: &Desc, query: &Query) -> Checked {
    for (size, dimension) in desc.dims().into_iter().zip([4, 3, 2, 1]) {
        let limit = query.max_for_dim(dimension);
        require(size != 0, status::ZDNN_INVALID_SHAPE)?;
        if size > limit {
            return Err(match limit {
                0 => status::ZDNN_UNSUPPORTED_AIU_EXCEPTION,
                _ => status::ZDNN_INVALID_SHAPE,
            });
        }
    }
    require(
        stick_bytes(desc) <= query.max_tensor_size(),
        status::ZDNN_INVALID_SHAPE,
    )
}

/// Checks a transformed descriptor before its sticks are allocated.
pub fn allocatable(desc: &Desc) -> Checked {
    let (layout, kind) = (desc.layout, desc.kind);
    match desc.format {
        format::ZDNN_FORMAT_4DFEATURE => {
            require(is_feature_layout(layout), status::ZDNN_INVALID_LAYOUT)?;
            let types = [
                kind::ZDNN_DLFLOAT16,
                kind::ZDNN_BINARY_INT8,
                kind::ZDNN_BINARY_INT32,
            ];
            require(types.contains(&kind), status::ZDNN_INVALID_TYPE)
        }
        format::ZDNN_FORMAT_4DKERNEL => {
            require(kind == kind::ZDNN_DLFLOAT16, status::ZDNN_INVALID_TYPE)?;
            require(layout == layout::ZDNN_HWCK, status::ZDNN_INVALID_LAYOUT)
        }
        format::ZDNN_FORMAT_4DWEIGHTS => {
            require(kind == kind::ZDNN_BINARY_INT8, status::ZDNN_INVALID_TYPE)?;
            require(layout == layout::ZDNN_NHWC, status::ZDNN_INVALID_LAYOUT)
        }
        _ => Err(status::ZDNN_INVALID_FORMAT),
    }
}

fn transformable(desc: &Desc, pre: &Desc) -> bool {
    let layouts = match desc.format {
        format::ZDNN_FORMAT_4DFEATURE => {
            is_feature_layout(desc.layout) && is_plain_layout(pre.layout)
        }
        format::ZDNN_FORMAT_4DKERNEL => {
            desc.layout == layout::ZDNN_HWCK && pre.layout == layout::ZDNN_HWCK
        }
        _ => false,
    };
    layouts && desc.kind == kind::ZDNN_DLFLOAT16 && kind::FLOATS.contains(&pre.kind)
}

fn quantizable(desc: &Desc, pre: &Desc) -> bool {
    let unusual = [layout::ZDNN_4DS, layout::ZDNN_NCHW];
    let layouts = desc.layout == layout::ZDNN_NHWC
        && is_plain_layout(pre.layout)
        && !unusual.contains(&pre.layout);
    let from_float = kind::FLOATS.contains(&pre.kind);
    layouts
        && match (desc.format, desc.kind) {
            (format::ZDNN_FORMAT_4DFEATURE, kind::ZDNN_DLFLOAT16) => from_float,
            (format::ZDNN_FORMAT_4DFEATURE, kind::ZDNN_BINARY_INT8) => {
                from_float || pre.kind == kind::INT8
            }
            (format::ZDNN_FORMAT_4DWEIGHTS, kind::ZDNN_BINARY_INT8) => pre.kind == kind::INT8,
            _ => false,
        }
}

fn ready(ztensor: &Ztensor, desc: &Desc) -> bool {
    !ztensor.buffer.is_null()
        && !ztensor.is_misaligned()
        && ztensor.buffer_size >= stick_bytes(desc)
        && ztensor.is_transformed == 0
}

fn single_array(desc: &Desc, pre: &Desc) -> Reading {
    let bytes_each = product(&desc.dims()).wrapping_mul(kind::bytes(pre.kind) as u64);
    Reading {
        arrays: 1,
        bytes_each,
    }
}

/// Returns the arrays of gates; None if a check refuses, or if the user's rows and columns need
/// more sticks than the buffer holds. Ignores the rows and columns of the transformed descriptor.
fn gate_arrays(desc: &Desc, pre: &Desc, query: &Query) -> Option<Reading> {
    let halves = matches!(
        desc.layout,
        layout::ZDNN_BIDIR_FICO | layout::ZDNN_BIDIR_ZRH
    );
    let (slices, rows) = match pre.layout {
        layout::ZDNN_3DS => (pre.dim3, pre.dim2),
        layout::ZDNN_2DS => (pre.dim2, 1),
        _ => return None,
    };
    if halves && pre.layout == layout::ZDNN_3DS && !rows.is_multiple_of(2) {
        return None;
    }
    let height = if halves {
        padded(rows / 2).wrapping_mul(2)
    } else {
        rows
    };
    let arrays = gates(desc.layout);
    let width = padded(pre.dim1).checked_mul(u32::try_from(arrays).ok()?)?;
    let written = desc.with_dims([slices, 1, height, width]);
    let bytes_each = product(&[slices, rows, pre.dim1]).wrapping_mul(kind::bytes(pre.kind) as u64);
    let fits = slices == desc.dim4
        && dims_fit(&written, query).is_ok()
        && stick_bytes(&written) <= stick_bytes(desc);
    fits.then_some(Reading { arrays, bytes_each })
}

/// Returns the arrays that zdnn_transform_ztensor reads; None if a check before reading refuses.
pub unsafe fn transform_reads(ztensor: &Ztensor, query: &Query) -> Option<Reading> {
    let (desc, pre) = unsafe { (ztensor.transformed(), ztensor.pre_transformed()) };
    let passed =
        transformable(&desc, &pre) && dims_fit(&desc, query).is_ok() && ready(ztensor, &desc);
    match (passed, gates(desc.layout)) {
        (false, _) => None,
        (true, 0) => Some(single_array(&desc, &pre)),
        (true, _) => gate_arrays(&desc, &pre, query),
    }
}

/// Returns the array that zdnn_transform_ztensor_with_saturation reads, as `transform_reads`.
pub unsafe fn saturating_reads(ztensor: &Ztensor, query: &Query) -> Option<Reading> {
    unsafe { transform_reads(ztensor, query) }.filter(|reading| reading.arrays == 1)
}

/// Returns the array that zdnn_transform_quantized_ztensor reads, as `transform_reads`. A machine
/// without the parameter block format of NNPA-TRANSFORM refuses conversions that need this
/// function.
pub unsafe fn quantized_reads(ztensor: &Ztensor, query: &Query) -> Option<Reading> {
    let (desc, pre) = unsafe { (ztensor.transformed(), ztensor.pre_transformed()) };
    let software =
        pre.kind == kind::INT8 || (desc.kind == kind::ZDNN_DLFLOAT16 && pre.kind != kind::FP32);
    let passed = ready(ztensor, &desc)
        && quantizable(&desc, &pre)
        && dims_fit(&desc, query).is_ok()
        && (software || query.has_parmblk_format(1));
    passed.then(|| single_array(&desc, &pre))
}

/// Returns whether zdnn_transform_origtensor reads the sticks of a tensor.
pub unsafe fn origtensor_reads(ztensor: &Ztensor, query: &Query) -> bool {
    unsafe { reads_back(ztensor, ztensor.pre_transformed().kind, query) }
}

/// Returns whether a transform back to `kind` reads the sticks of a tensor.
unsafe fn reads_back(ztensor: &Ztensor, kind: u32, query: &Query) -> bool {
    let (desc, pre) = unsafe { (ztensor.transformed(), ztensor.pre_transformed()) };
    let types = match desc.kind {
        kind::ZDNN_DLFLOAT16 => kind::FLOATS.contains(&kind),
        kind::ZDNN_BINARY_INT32 => kind == kind::INT32,
        _ => false,
    };
    let descriptors = desc.format == format::ZDNN_FORMAT_4DFEATURE
        && desc.layout == layout::ZDNN_NHWC
        && types
        && is_plain_layout(pre.layout);
    descriptors
        && dims_fit(&desc, query).is_ok()
        && !ztensor.is_misaligned()
        && ztensor.is_transformed != 0
}

/// Returns whether zdnn_reshape_ztensor reads the sticks of `src`: to copy them, or to convert them
/// to FP32 and back.
pub unsafe fn reshape_reads(src: &Ztensor, dest: &Ztensor, query: &Query) -> bool {
    let (from, to) = unsafe { (src.transformed(), dest.transformed()) };
    let elements = |pre: Desc| product(&pre.dims()[4 - rank(pre.layout)..]);
    let counts = unsafe { [src, dest].map(|side| elements(side.pre_transformed())) };
    counts[0] == counts[1]
        && from.layout == to.layout
        && matches!(from.layout, layout::ZDNN_NHWC | layout::ZDNN_HWCK)
        && src.is_transformed != 0
        && dest.is_transformed == 0
        && (from.dims() == to.dims()
            || from.dim1 == to.dim1
            || unsafe { reads_back(src, kind::FP32, query) })
}

/// Returns whether zdnn_getrange_ztensor reads the sticks of a tensor.
pub unsafe fn getrange_reads(ztensor: &Ztensor) -> bool {
    let desc = unsafe { ztensor.transformed() };
    ztensor.is_transformed != 0
        && desc.layout == layout::ZDNN_NHWC
        && desc.format == format::ZDNN_FORMAT_4DFEATURE
        && desc.kind == kind::ZDNN_DLFLOAT16
}
