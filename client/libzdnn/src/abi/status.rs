// SPDX-License-Identifier: Apache-2.0
//! Statuses and their messages. Source: zDNN API Reference 1.2.0, "zDNN Statuses" and
//! zdnn_get_status_message.

use std::ffi::{CStr, c_char};

use crate::abi::constants::STATUS_TEXTS;
pub use crate::abi::constants::status::*;

/// `zdnn_status`: an open number.
pub type Status = u32;

const UNKNOWN: &CStr = c"(Status string is not defined.)";

/// Returns the static text of a status.
pub fn message(status: Status) -> &'static CStr {
    let named = STATUS_TEXTS.iter().find(|(number, _)| *number == status);
    named.map_or(UNKNOWN, |(_, text)| text)
}

/// zdnn_get_status_message: static text, also for numbers without a name.
#[unsafe(no_mangle)]
pub extern "C" fn zdnn_get_status_message(status: Status) -> *const c_char {
    message(status).as_ptr()
}
