// SPDX-License-Identifier: Apache-2.0
//! The structures that a C program passes. Source: zDNN API Reference 1.2.0, "zTensors".

pub mod checks;
mod constants;
pub mod machine;
pub mod memory;
pub mod status;
pub mod sticks;

use std::ffi::c_void;
use std::mem::{align_of, offset_of, size_of};

use crate::wire;

pub use constants::{format, layout};

/// Sticks lie on boundaries of this many bytes.
pub const PAGE: usize = 4096;

/// `zdnn_tensor_desc`: enums are 4 bytes and open, dimensions are elements.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Desc {
    pub layout: u32,
    pub format: u32,
    pub kind: u32,
    pub dim4: u32,
    pub dim3: u32,
    pub dim2: u32,
    pub dim1: u32,
}

/// `zdnn_ztensor`: descriptors are borrowed, the buffer is memory of the program.
#[repr(C)]
pub struct Ztensor {
    pub pre_transformed_desc: *mut Desc,
    pub transformed_desc: *mut Desc,
    pub buffer_size: u64,
    pub buffer: *mut c_void,
    pub is_transformed: u8,
    pub reserved: [u8; 3],
    pub rec_scale: f32,
    pub offset: f32,
    pub reserved2: [u8; 20],
}

const _: () = assert!(size_of::<Desc>() == 28 && align_of::<Desc>() == 4);
const _: () = assert!(offset_of!(Desc, format) == 4 && offset_of!(Desc, kind) == 8);
const _: () = assert!(offset_of!(Desc, dim4) == 12 && offset_of!(Desc, dim1) == 24);
const _: () = assert!(size_of::<Ztensor>() == 64 && align_of::<Ztensor>() == 8);
const _: () = assert!(offset_of!(Ztensor, buffer_size) == 16);
const _: () = assert!(offset_of!(Ztensor, buffer) == 24);
const _: () = assert!(offset_of!(Ztensor, is_transformed) == 32);
const _: () = assert!(offset_of!(Ztensor, rec_scale) == 36 && offset_of!(Ztensor, offset) == 40);
const _: () = assert!(offset_of!(Ztensor, reserved2) == 44);

impl Desc {
    /// The dimensions, outermost first.
    pub fn dims(&self) -> [u32; 4] {
        [self.dim4, self.dim3, self.dim2, self.dim1]
    }

    /// Returns the same descriptor with other dimensions, outermost first.
    pub fn with_dims(&self, [dim4, dim3, dim2, dim1]: [u32; 4]) -> Self {
        Self {
            dim4,
            dim3,
            dim2,
            dim1,
            ..*self
        }
    }

    /// Returns the message: a number above 2^31-1 goes as the int32 with the same bits.
    pub fn message(&self) -> wire::TensorDesc {
        wire::TensorDesc {
            layout: Some(self.layout.cast_signed()),
            format: Some(self.format.cast_signed()),
            r#type: Some(self.kind.cast_signed()),
            dim4: self.dim4,
            dim3: self.dim3,
            dim2: self.dim2,
            dim1: self.dim1,
        }
    }
}

impl Ztensor {
    /// A structure whose bits are all zero.
    pub const ZERO: Self = unsafe { std::mem::zeroed() };

    /// Copies the transformed descriptor as it stands at this call.
    pub unsafe fn transformed(&self) -> Desc {
        unsafe { *self.transformed_desc }
    }

    /// Copies the pre-transformed descriptor, as `transformed`.
    pub unsafe fn pre_transformed(&self) -> Desc {
        unsafe { *self.pre_transformed_desc }
    }

    /// Returns whether the buffer lies off a 4 KiB boundary.
    pub fn is_misaligned(&self) -> bool {
        is_misaligned(self.buffer)
    }
}

/// Returns whether an address lies off a 4 KiB boundary; NULL does not.
pub fn is_misaligned(address: *const c_void) -> bool {
    !(address as usize).is_multiple_of(PAGE)
}

/// Types, `zdnn_data_types`.
pub mod kind {
    pub use super::constants::kind::*;

    /// The types that convert to DLFLOAT16.
    pub const FLOATS: [u32; 3] = [FP32, FP16, BFLOAT];

    /// Bytes of an element of a user's array; 0 for a type that no array has.
    pub fn bytes(kind: u32) -> usize {
        match kind {
            FP32 | INT32 => 4,
            FP16 | BFLOAT => 2,
            INT8 => 1,
            _ => 0,
        }
    }
}
