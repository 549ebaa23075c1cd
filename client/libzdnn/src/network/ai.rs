// SPDX-License-Identifier: Apache-2.0
//! The structures of `ai_platform.h` and `nnpa_network.h`, and errors of calls.
//! Source: X-CUBE-AI 7.0 Embedded Inference Client API 1.1.0.

use std::ffi::{c_char, c_void};
use std::mem::{offset_of, size_of};
use std::ptr;

use crate::network::wire;

/// The bits of a format word that are not attribute flags.
const FORMAT_MASK: i32 = 0x01FF_FFFF;
/// AI_BUFFER_META_FLAG_SCALE_FLOAT, .._ZEROPOINT_U8, .._ZEROPOINT_S8.
const FLAG_SCALE_FLOAT: u16 = 1;
const FLAG_ZEROPOINT_U8: u16 = 2;
const FLAG_ZEROPOINT_S8: u16 = 4;
const HAS_INTQ_INFO: u32 = 1;

/// `ai_buffer`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Buffer {
    pub format: i32,
    pub n_batches: u16,
    pub height: u16,
    pub width: u16,
    pub channels: u32,
    pub data: *mut c_void,
    pub meta_info: *mut MetaInfo,
}

/// `ai_buffer_meta_info`.
#[repr(C)]
pub struct MetaInfo {
    flags: u32,
    intq_info: *mut IntqList,
}

#[repr(C)]
struct IntqList {
    flags: u16,
    size: u16,
    info: *mut Intq,
}

#[repr(C)]
struct Intq {
    scale: *mut f32,
    zeropoint: *mut c_void,
}

/// `ai_network_params`.
#[repr(C)]
pub struct Params {
    pub params: Buffer,
    pub activations: Buffer,
}

/// `ai_platform_version`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Version {
    pub major: u8,
    pub minor: u8,
    pub micro: u8,
    pub reserved: u8,
}

/// `ai_network_report`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Report {
    pub model_name: *const c_char,
    pub model_signature: *const c_char,
    pub model_datetime: *const c_char,
    pub compile_datetime: *const c_char,
    pub runtime_revision: *const c_char,
    pub runtime_version: Version,
    pub tool_revision: *const c_char,
    pub tool_version: Version,
    pub tool_api_version: Version,
    pub api_version: Version,
    pub interface_api_version: Version,
    pub n_macc: u32,
    pub n_inputs: u16,
    pub n_outputs: u16,
    pub inputs: *mut Buffer,
    pub outputs: *mut Buffer,
    pub activations: Buffer,
    pub params: Buffer,
    pub n_nodes: u32,
    pub signature: u32,
}

/// `nnpa_network_model`: the generator's tables, in static memory of the program.
#[repr(C)]
pub struct Model {
    pub header: *const u8,
    pub header_size: u32,
    pub model: *const u8,
    pub model_size: u64,
    pub signature: *const c_char,
    pub tools_api_version: Version,
    pub type_sizes: [u8; 10],
    pub weights_sha256: *const u8,
    pub weights_size: u32,
    pub n_pieces: u32,
    pub piece_sizes: *const u32,
}

// Its memory is static, and never written.
unsafe impl Sync for Model {}

#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(size_of::<Buffer>() == 32 && offset_of!(Buffer, channels) == 12);
    assert!(offset_of!(Buffer, data) == 16 && offset_of!(Buffer, meta_info) == 24);
    assert!(size_of::<Params>() == 64 && size_of::<Report>() == 168);
    assert!(offset_of!(Report, tool_revision) == 48 && offset_of!(Report, n_macc) == 72);
    assert!(offset_of!(Report, inputs) == 80 && offset_of!(Report, activations) == 96);
    assert!(size_of::<Model>() == 80 && offset_of!(Model, weights_sha256) == 56);
};

/// `ai_error`: type in the first 8 bits, code in the last 24.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Error {
    word: u32,
}

impl Error {
    pub const NONE: Self = Self { word: 0 };

    /// Packs type and code as C's bit fields lie on this machine.
    pub fn new(kind: wire::AiErrorType, code: wire::AiErrorCode) -> Self {
        Self::packed(kind as i32, code as i32)
    }

    /// Packs the numbers of an answer, known or not.
    pub fn packed(kind: i32, code: i32) -> Self {
        let kind = kind.cast_unsigned() & 0xFF;
        let code = code.cast_unsigned() & 0xFF_FFFF;
        let word = if cfg!(target_endian = "big") {
            kind << 24 | code
        } else {
            kind | code << 8
        };
        Self { word }
    }

    /// Returns the error of an answer; NONE if it has no error.
    pub fn of(error: Option<&wire::AiError>) -> Self {
        error.map_or(Self::NONE, |error| Self::packed(error.r#type, error.code))
    }
}

impl Buffer {
    /// The descriptor of no memory.
    pub const NULL: Self = Self {
        format: 0x40, // AI_BUFFER_FORMAT_NONE
        n_batches: 0,
        height: 0,
        width: 0,
        channels: 0,
        data: ptr::null_mut(),
        meta_info: ptr::null_mut(),
    };

    /// Returns a descriptor without memory.
    pub fn described(message: &wire::Buffer) -> Self {
        let short = |number: u32| u16::try_from(number).unwrap_or(u16::MAX);
        Self {
            format: message.format.unwrap_or(Self::NULL.format),
            n_batches: short(message.n_batches.unwrap_or(1)),
            height: short(message.height),
            width: short(message.width),
            channels: message.channels,
            ..Self::NULL
        }
    }

    /// Returns the message of a descriptor, without its memory.
    pub fn message(&self) -> wire::Buffer {
        wire::Buffer {
            format: Some(self.format),
            n_batches: Some(self.n_batches.into()),
            height: self.height.into(),
            width: self.width.into(),
            channels: self.channels,
            ..wire::Buffer::default()
        }
    }

    /// Returns whether another descriptor has the same format and dimensions of one batch.
    pub fn is_like(&self, other: &Self) -> bool {
        self.format & FORMAT_MASK == other.format & FORMAT_MASK
            && (self.height, self.width, self.channels)
                == (other.height, other.width, other.channels)
    }

    /// Bits of an element.
    fn bits(&self) -> usize {
        usize::try_from(self.format >> 7 & 0x7F).unwrap_or(0)
    }

    /// Bytes of an element; 1 for elements of fewer bits.
    pub fn element_bytes(&self) -> usize {
        (self.bits() / 8).max(1)
    }

    /// Bytes of all batches. Source: AI_BUFFER_BYTE_SIZE.
    pub fn bytes(&self, n_batches: u16) -> usize {
        let count = usize::from(self.height) * usize::from(self.width) * self.channels as usize;
        ((count * self.bits() + 4) >> 3) * usize::from(n_batches)
    }
}

/// Scale and zero point of one tensor, where C's structures point at them.
pub struct Quantisation {
    meta: Box<MetaInfo>,
    _kept: (Box<IntqList>, Box<Intq>, Box<f32>, Box<u8>),
}

impl Quantisation {
    /// Makes the structures of a message for a tensor of this format.
    pub fn of(message: &wire::MetaInfo, format: i32) -> Self {
        let is_signed = format >> 23 & 1 == 1;
        let mut scale = Box::new(message.scale);
        let mut zeropoint = Box::new(message.zero_point.to_le_bytes()[0]);
        let mut info = Box::new(Intq {
            scale: &raw mut *scale,
            zeropoint: (&raw mut *zeropoint).cast(),
        });
        let sign = if is_signed {
            FLAG_ZEROPOINT_S8
        } else {
            FLAG_ZEROPOINT_U8
        };
        let mut list = Box::new(IntqList {
            flags: FLAG_SCALE_FLOAT | sign,
            size: 1,
            info: &raw mut *info,
        });
        let meta = Box::new(MetaInfo {
            flags: HAS_INTQ_INFO,
            intq_info: &raw mut *list,
        });
        Self {
            meta,
            _kept: (list, info, scale, zeropoint),
        }
    }

    /// Where C finds it.
    pub fn address(&mut self) -> *mut MetaInfo {
        &raw mut *self.meta
    }
}
