// SPDX-License-Identifier: Apache-2.0
//! The library's checks that precede reading or allocating memory of the program.
//! Source: zDNN API Reference 1.2.0, "General zTensor Requirements"; order as in the library.

use crate::abi::machine::Query;
use crate::abi::status::{self, Status};
use crate::abi::sticks::{gates, padded, stick_bytes};
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
    layout == layout::NHWC || gates(layout) != 0
}

fn is_plain_layout(layout: u32) -> bool {
    matches!(
        layout,
        layout::ONE_D
            | layout::TWO_D
            | layout::TWO_DS
            | layout::THREE_D
            | layout::THREE_DS
            | layout::FOUR_D
            | layout::FOUR_DS
            | layout::NHWC
            | layout::NCHW
    )
}

/// Checks dims, dim4 first, and the size in bytes, against the machine's limits.
pub fn dims_fit(desc: &Desc, query: &Query) -> Checked {
    for (size, dimension) in desc.dims().into_iter().zip([4, 3, 2, 1]) {
        let limit = query.max_for_dim(dimension);
        require(size != 0, status::INVALID_SHAPE)?;
        if size > limit {
            return Err(match limit {
                0 => status::UNSUPPORTED_AIU_EXCEPTION,
                _ => status::INVALID_SHAPE,
            });
        }
    }
    require(
        stick_bytes(desc) <= query.max_tensor_size(),
        status::INVALID_SHAPE,
    )
}

/// Checks a transformed descriptor before its sticks are allocated.
pub fn allocatable(desc: &Desc) -> Checked {
    let (layout, kind) = (desc.layout, desc.kind);
    match desc.format {
        format::FEATURE => {
            require(is_feature_layout(layout), status::INVALID_LAYOUT)?;
            let types = [kind::DLFLOAT16, kind::BINARY_INT8, kind::BINARY_INT32];
            require(types.contains(&kind), status::INVALID_TYPE)
        }
        format::KERNEL => {
            require(kind == kind::DLFLOAT16, status::INVALID_TYPE)?;
            require(layout == layout::HWCK, status::INVALID_LAYOUT)
        }
        format::WEIGHTS => {
            require(kind == kind::BINARY_INT8, status::INVALID_TYPE)?;
            require(layout == layout::NHWC, status::INVALID_LAYOUT)
        }
        _ => Err(status::INVALID_FORMAT),
    }
}

fn transformable(desc: &Desc, pre: &Desc) -> bool {
    let layouts = match desc.format {
        format::FEATURE => is_feature_layout(desc.layout) && is_plain_layout(pre.layout),
        format::KERNEL => desc.layout == layout::HWCK && pre.layout == layout::HWCK,
        _ => false,
    };
    layouts && desc.kind == kind::DLFLOAT16 && kind::FLOATS.contains(&pre.kind)
}

fn quantizable(desc: &Desc, pre: &Desc) -> bool {
    let unusual = [layout::FOUR_DS, layout::NCHW];
    let layouts = desc.layout == layout::NHWC
        && is_plain_layout(pre.layout)
        && !unusual.contains(&pre.layout);
    let from_float = kind::FLOATS.contains(&pre.kind);
    layouts
        && match (desc.format, desc.kind) {
            (format::FEATURE, kind::DLFLOAT16) => from_float,
            (format::FEATURE, kind::BINARY_INT8) => from_float || pre.kind == kind::INT8,
            (format::WEIGHTS, kind::BINARY_INT8) => pre.kind == kind::INT8,
            _ => false,
        }
}

fn ready(ztensor: &Ztensor, desc: &Desc) -> bool {
    !ztensor.buffer.is_null()
        && !ztensor.is_misaligned()
        && ztensor.buffer_size >= stick_bytes(desc)
        && ztensor.is_transformed == 0
}

fn product(dims: &[u32]) -> u64 {
    dims.iter()
        .fold(1, |product, dim| product.wrapping_mul(u64::from(*dim)))
}

fn single_array(desc: &Desc, pre: &Desc) -> Reading {
    let bytes_each = product(&desc.dims()).wrapping_mul(kind::bytes(pre.kind));
    Reading {
        arrays: 1,
        bytes_each,
    }
}

/// Returns the arrays of gates; none where the descriptors contradict each other.
fn gate_arrays(desc: &Desc, pre: &Desc) -> Option<Reading> {
    let halves = matches!(desc.layout, layout::BIDIR_FICO | layout::BIDIR_ZRH);
    let (slices, rows) = match pre.layout {
        layout::THREE_DS => (pre.dim3, pre.dim2),
        layout::TWO_DS => (pre.dim2, 1),
        _ => return None,
    };
    if halves && pre.layout == layout::THREE_DS && !rows.is_multiple_of(2) {
        return None;
    }
    let height = if halves {
        padded(rows / 2).wrapping_mul(2)
    } else {
        rows
    };
    let arrays = gates(desc.layout);
    let width = padded(pre.dim1).wrapping_mul(u32::try_from(arrays).ok()?);
    let bytes_each = product(&[slices, rows, pre.dim1]).wrapping_mul(kind::bytes(pre.kind));
    (desc.dims() == [slices, 1, height, width]).then_some(Reading { arrays, bytes_each })
}

/// Returns what zdnn_transform_ztensor reads; none where a check that precedes reading refuses.
///
/// # Safety
/// The ztensor's descriptors are valid, as C asks.
pub unsafe fn transform_reads(ztensor: &Ztensor, query: &Query) -> Option<Reading> {
    let (desc, pre) = unsafe { (ztensor.transformed(), ztensor.pre_transformed()) };
    let passed =
        transformable(&desc, &pre) && dims_fit(&desc, query).is_ok() && ready(ztensor, &desc);
    match (passed, gates(desc.layout)) {
        (false, _) => None,
        (true, 0) => Some(single_array(&desc, &pre)),
        (true, _) => gate_arrays(&desc, &pre),
    }
}

/// Returns what zdnn_transform_ztensor_with_saturation reads, as `transform_reads`.
///
/// # Safety
/// As `transform_reads`.
pub unsafe fn saturating_reads(ztensor: &Ztensor, query: &Query) -> Option<Reading> {
    unsafe { transform_reads(ztensor, query) }.filter(|reading| reading.arrays == 1)
}

/// Returns what zdnn_transform_quantized_ztensor reads, as `transform_reads`. Machines without the
/// parameter block format of NNPA-TRANSFORM refuse what only it converts.
///
/// # Safety
/// As `transform_reads`.
pub unsafe fn quantized_reads(ztensor: &Ztensor, query: &Query) -> Option<Reading> {
    let (desc, pre) = unsafe { (ztensor.transformed(), ztensor.pre_transformed()) };
    let software =
        pre.kind == kind::INT8 || (desc.kind == kind::DLFLOAT16 && pre.kind != kind::FP32);
    let passed = ready(ztensor, &desc)
        && quantizable(&desc, &pre)
        && dims_fit(&desc, query).is_ok()
        && (software || query.has_parmblk_format(1));
    passed.then(|| single_array(&desc, &pre))
}
