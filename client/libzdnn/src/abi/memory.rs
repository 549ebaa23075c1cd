// SPDX-License-Identifier: Apache-2.0
//! Views of the program's memory, and its byte order.

use std::ffi::{CStr, c_char, c_void};

use bytes::Bytes;

use crate::wire;

/// The byte order of the host: sticks in memory are native.
pub fn byte_order() -> i32 {
    if cfg!(target_endian = "big") {
        wire::ByteOrder::BigEndian.into()
    } else {
        wire::ByteOrder::LittleEndian.into()
    }
}

/// Views memory of the program.
///
/// # Safety
/// The memory is valid for `size` bytes while the view lives.
pub unsafe fn memory<'a>(address: *const c_void, size: u64) -> &'a [u8] {
    let size = usize::try_from(size).unwrap_or(0);
    unsafe { std::slice::from_raw_parts(address.cast(), size) }
}

/// Copies a text of C; none for NULL.
pub unsafe fn text(address: *const c_char) -> Option<String> {
    if address.is_null() {
        return None;
    }
    let text = unsafe { CStr::from_ptr(address) };
    Some(text.to_string_lossy().into_owned())
}

/// Views memory of the program as part of a message.
///
/// # Safety
/// As `memory`, until the message and its parts are dropped: messages are copied when they are
/// sent, and none outlives its call.
pub unsafe fn lent(bytes: &[u8]) -> Bytes {
    let (address, size) = (bytes.as_ptr(), bytes.len());
    Bytes::from_static(unsafe { std::slice::from_raw_parts(address, size) })
}

/// Reverses the bytes of every element of `width` bytes on a big-endian host: user arrays travel
/// little-endian.
pub fn swap_to_little_endian(bytes: &mut [u8], width: usize) {
    if cfg!(target_endian = "big") && width > 1 {
        bytes.chunks_exact_mut(width).for_each(<[u8]>::reverse);
    }
}
