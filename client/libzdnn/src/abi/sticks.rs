// SPDX-License-Identifier: Apache-2.0
//! The arithmetic of layouts and sticks. Source: zDNN API Reference 1.2.0, "Data Transformation".

use crate::abi::{Desc, format, kind, layout};

/// Rounds up to whole sticks of 64 cells, as a uint32_t does.
pub fn padded(size: u32) -> u32 {
    size.wrapping_add(63) & !63
}

/// Returns how many dimensions the user gives for a layout; concatenated and unknown ones have none.
pub fn rank(layout: u32) -> usize {
    match layout {
        layout::ONE_D => 1,
        layout::TWO_D | layout::TWO_DS => 2,
        layout::THREE_D | layout::THREE_DS => 3,
        layout::FOUR_D | layout::FOUR_DS | layout::NHWC | layout::NCHW | layout::HWCK => 4,
        _ => 0,
    }
}

/// Returns the dimensions of a user's descriptor, outermost first; 0 for those that its layout does
/// not have, which a program may leave unset.
pub fn user_dims(pre: &Desc) -> [u32; 4] {
    let mut dims = pre.dims();
    dims[..4 - rank(pre.layout)].fill(0);
    dims
}

/// Returns the gates of a concatenated layout, 0 for the others.
pub fn gates(layout: u32) -> usize {
    match layout {
        layout::FICO | layout::BIDIR_FICO => 4,
        layout::ZRH | layout::BIDIR_ZRH => 3,
        _ => 0,
    }
}

/// Bytes of the sticks that a transformed descriptor calls for, modulo 2^64.
pub fn stick_bytes(desc: &Desc) -> u64 {
    let (rows, cells) = match (desc.kind, desc.format) {
        (kind::BINARY_INT8, format::WEIGHTS) => (desc.dim2.div_ceil(2), 64),
        (kind::BINARY_INT8, _) => (desc.dim2, 128),
        (kind::BINARY_INT32, _) => (desc.dim2, 32),
        _ => (desc.dim2, 64),
    };
    u64::from(desc.dim4)
        .wrapping_mul(u64::from(desc.dim3))
        .wrapping_mul(u64::from(rows.div_ceil(32)))
        .wrapping_mul(u64::from(desc.dim1.div_ceil(cells)))
        .wrapping_mul(4096)
}
