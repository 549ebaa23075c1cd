// SPDX-License-Identifier: Apache-2.0
//! The structures that a C program passes. Source: zDNN API Reference 1.2.0, "zTensors".

pub mod checks;
pub mod machine;
pub mod memory;
pub mod status;
pub mod sticks;

use std::ffi::c_void;
use std::mem::{align_of, offset_of, size_of};

use crate::wire;

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

    /// The same descriptor with other dimensions, outermost first.
    pub fn with_dims(&self, [dim4, dim3, dim2, dim1]: [u32; 4]) -> Self {
        Self {
            dim4,
            dim3,
            dim2,
            dim1,
            ..*self
        }
    }

    /// The message: a number above 2^31-1 goes as the int32 with the same bits.
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
    pub const ZERO: Self = Self {
        pre_transformed_desc: std::ptr::null_mut(),
        transformed_desc: std::ptr::null_mut(),
        buffer_size: 0,
        buffer: std::ptr::null_mut(),
        is_transformed: 0,
        reserved: [0; 3],
        rec_scale: 0.0,
        offset: 0.0,
        reserved2: [0; 20],
    };

    /// Copies the transformed descriptor as it stands at this call.
    ///
    /// # Safety
    /// The pointer is the program's, and valid as C asks.
    pub unsafe fn transformed(&self) -> Desc {
        unsafe { *self.transformed_desc }
    }

    /// Copies the pre-transformed descriptor, as `transformed`.
    ///
    /// # Safety
    /// The pointer is the program's, and valid as C asks.
    pub unsafe fn pre_transformed(&self) -> Desc {
        unsafe { *self.pre_transformed_desc }
    }

    /// Returns whether the buffer is off its boundary.
    pub fn is_misaligned(&self) -> bool {
        is_misaligned(self.buffer)
    }
}

/// Returns whether an address is not on a 4 KiB boundary; NULL is.
pub fn is_misaligned(address: *const c_void) -> bool {
    !(address as usize).is_multiple_of(PAGE)
}

/// Layouts, `zdnn_data_layouts`.
pub mod layout {
    pub const ONE_D: u32 = 0;
    pub const TWO_D: u32 = 1;
    pub const TWO_DS: u32 = 2;
    pub const THREE_D: u32 = 3;
    pub const THREE_DS: u32 = 4;
    pub const ZRH: u32 = 5;
    pub const FOUR_D: u32 = 6;
    pub const FOUR_DS: u32 = 7;
    pub const NHWC: u32 = 8;
    pub const NCHW: u32 = 9;
    pub const FICO: u32 = 10;
    pub const HWCK: u32 = 11;
    pub const BIDIR_ZRH: u32 = 12;
    pub const BIDIR_FICO: u32 = 13;
}

/// Formats, `zdnn_data_formats`.
pub mod format {
    pub const FEATURE: u32 = 0;
    pub const KERNEL: u32 = 1;
    pub const WEIGHTS: u32 = 2;
}

/// Types, `zdnn_data_types`.
pub mod kind {
    pub const DLFLOAT16: u32 = 0;
    pub const BINARY_INT8: u32 = 8;
    pub const BINARY_INT32: u32 = 10;
    pub const INT8: u32 = 251;
    pub const INT32: u32 = 252;
    pub const BFLOAT: u32 = 253;
    pub const FP16: u32 = 254;
    pub const FP32: u32 = 255;
    /// What converts to DLFLOAT16.
    pub const FLOATS: [u32; 3] = [FP32, FP16, BFLOAT];

    /// Bytes of an element of a user's array; 0 for a type that no array has.
    pub fn bytes(kind: u32) -> u64 {
        match kind {
            FP32 | INT32 => 4,
            FP16 | BFLOAT => 2,
            INT8 => 1,
            _ => 0,
        }
    }
}
