// SPDX-License-Identifier: Apache-2.0
//! The arithmetic of layouts and sticks. Source: zDNN API Reference 1.2.0, "Data Transformation".

use crate::abi::{Desc, format, kind, layout};

/// Rounds up to whole sticks of 64 cells, modulo 2^32.
pub fn padded(size: u32) -> u32 {
    size.wrapping_add(63) & !63
}

/// Returns the number of dimensions that the user gives for a layout; 0 for concatenated and
/// unknown layouts.
pub fn rank(layout: u32) -> usize {
    match layout {
        layout::ZDNN_1D => 1,
        layout::ZDNN_2D | layout::ZDNN_2DS => 2,
        layout::ZDNN_3D | layout::ZDNN_3DS => 3,
        layout::ZDNN_4D
        | layout::ZDNN_4DS
        | layout::ZDNN_NHWC
        | layout::ZDNN_NCHW
        | layout::ZDNN_HWCK => 4,
        _ => 0,
    }
}

/// Returns the dimensions of a user's descriptor, outermost first; 0 for dimensions that its layout
/// lacks, which a program may leave unset.
pub fn user_dims(pre: &Desc) -> [u32; 4] {
    let mut dims = pre.dims();
    dims[..4 - rank(pre.layout)].fill(0);
    dims
}

/// Returns the number of gates of a concatenated layout; 0 for other layouts.
pub fn gates(layout: u32) -> usize {
    match layout {
        layout::ZDNN_FICO | layout::ZDNN_BIDIR_FICO => 4,
        layout::ZDNN_ZRH | layout::ZDNN_BIDIR_ZRH => 3,
        _ => 0,
    }
}

/// Returns the product of sizes, modulo 2^64.
pub fn product(sizes: &[u32]) -> u64 {
    let factors = sizes.iter().map(|size| u64::from(*size));
    factors.fold(1, u64::wrapping_mul)
}

/// Bytes of the sticks that a transformed descriptor calls for, modulo 2^64.
pub fn stick_bytes(desc: &Desc) -> u64 {
    let (rows, cells) = match (desc.kind, desc.format) {
        (kind::ZDNN_BINARY_INT8, format::ZDNN_FORMAT_4DWEIGHTS) => (desc.dim2.div_ceil(2), 64),
        (kind::ZDNN_BINARY_INT8, _) => (desc.dim2, 128),
        (kind::ZDNN_BINARY_INT32, _) => (desc.dim2, 32),
        _ => (desc.dim2, 64),
    };
    let pages = [rows.div_ceil(32), desc.dim1.div_ceil(cells)];
    product(&[desc.dim4, desc.dim3, pages[0], pages[1], 4096])
}
