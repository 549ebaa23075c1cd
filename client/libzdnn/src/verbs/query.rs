// SPDX-License-Identifier: Apache-2.0
//! Queries of the machine, all but zdnn_is_nnpa_installed answered from the cached query result.
//! Source: zDNN API Reference 1.2.0, "Support Functions".

use std::ffi::c_char;

use crate::abi::machine::Query;
use crate::abi::status::{self, Status};
use crate::call::operand::Operands;
use crate::call::{self, Lent, process_session};
use crate::process::environment;
use crate::wire::{self, operation::Operation as Arm, operation_result::Value};

/// Asks the cached query result; without a server the answer is `T`'s default.
fn cached<T: Default>(name: &str, ask: impl Fn(&Query) -> T) -> T {
    match process_session::session() {
        Ok(session) => ask(&session.query),
        Err(failure) => {
            call::failed(name, &failure);
            T::default()
        }
    }
}

/// zdnn_is_nnpa_installed: asks the machine, each time.
#[unsafe(no_mangle)]
pub extern "C" fn zdnn_is_nnpa_installed() -> bool {
    let ask = |_: &mut Operands<'_>| Arm::IsNnpaInstalled(wire::IsNnpaInstalled {});
    match unsafe { call::answer("zdnn_is_nnpa_installed", &ask, Lent::default()) } {
        Ok(result) => result.value == Some(Value::Boolean(true)),
        Err(failure) => {
            call::failed("zdnn_is_nnpa_installed", &failure);
            false
        }
    }
}

/// Answers one code of the variadic zdnn_is_nnpa_function_installed.
#[unsafe(no_mangle)]
pub extern "C" fn nnpa_has_function(code: i32) -> bool {
    cached("zdnn_is_nnpa_function_installed", |query| {
        query.has_function(code)
    })
}

/// Answers one number of the variadic zdnn_is_nnpa_parmblk_fmt_installed.
#[unsafe(no_mangle)]
pub extern "C" fn nnpa_has_parmblk_format(number: i32) -> bool {
    cached("zdnn_is_nnpa_parmblk_fmt_installed", |query| {
        query.has_parmblk_format(number)
    })
}

/// zdnn_is_nnpa_datatype_installed.
#[unsafe(no_mangle)]
pub extern "C" fn zdnn_is_nnpa_datatype_installed(types_bitmask: u16) -> bool {
    cached("zdnn_is_nnpa_datatype_installed", |query| {
        query.has_data_types(types_bitmask)
    })
}

/// zdnn_is_nnpa_layout_fmt_installed.
#[unsafe(no_mangle)]
pub extern "C" fn zdnn_is_nnpa_layout_fmt_installed(layout_bitmask: u32) -> bool {
    cached("zdnn_is_nnpa_layout_fmt_installed", |query| {
        query.has_layout_formats(layout_bitmask)
    })
}

/// zdnn_is_nnpa_conversion_installed: false for types other than NNPA_DATATYPE_1.
#[unsafe(no_mangle)]
pub extern "C" fn zdnn_is_nnpa_conversion_installed(kind: u32, format_bitmask: u16) -> bool {
    cached("zdnn_is_nnpa_conversion_installed", |query| {
        kind == 0 && query.has_conversions(format_bitmask)
    })
}

/// zdnn_get_nnpa_max_dim_idx_size, elements.
#[unsafe(no_mangle)]
pub extern "C" fn zdnn_get_nnpa_max_dim_idx_size() -> u32 {
    cached("zdnn_get_nnpa_max_dim_idx_size", Query::max_dim_idx_size)
}

/// zdnn_get_max_for_dim, elements.
#[unsafe(no_mangle)]
pub extern "C" fn zdnn_get_max_for_dim(dimension: u8) -> u32 {
    cached("zdnn_get_max_for_dim", |query| query.max_for_dim(dimension))
}

/// zdnn_get_nnpa_max_tensor_size, bytes.
#[unsafe(no_mangle)]
pub extern "C" fn zdnn_get_nnpa_max_tensor_size() -> u64 {
    cached("zdnn_get_nnpa_max_tensor_size", Query::max_tensor_size)
}

/// zdnn_refresh_nnpa_query_result: keeps the old result if the machine has no NNPA.
#[unsafe(no_mangle)]
pub extern "C" fn zdnn_refresh_nnpa_query_result() -> Status {
    const NAME: &str = "zdnn_refresh_nnpa_query_result";
    let ask = |_: &mut Operands<'_>| Arm::RefreshNnpaQueryResult(wire::RefreshNnpaQueryResult {});
    let status = unsafe { call::status_of(NAME, Lent::default(), &ask) };
    if status != status::ZDNN_OK {
        return status;
    }
    match process_session::session().and_then(|session| process_session::requery(&session)) {
        Ok(()) => status,
        Err(failure) => call::failed(NAME, &failure),
    }
}

/// zdnn_is_version_runnable: the patch is ignored.
#[unsafe(no_mangle)]
pub extern "C" fn zdnn_is_version_runnable(ver_num: u32) -> bool {
    let (major, minor) = (ver_num >> 16 & 0xFF, ver_num >> 8 & 0xFF);
    let library = zdnn_get_library_version();
    cached("zdnn_is_version_runnable", |query| {
        let hardware = query.hardware_version;
        let least = (library >> 8 & 0xFF).min(hardware >> 8 & 0xFF);
        major == library >> 16 && major == hardware >> 16 && minor <= least
    })
}

/// zdnn_get_max_runnable_version: patch 0xFF, or 0.
#[unsafe(no_mangle)]
pub extern "C" fn zdnn_get_max_runnable_version() -> u32 {
    let library = zdnn_get_library_version();
    cached("zdnn_get_max_runnable_version", |query| {
        let hardware = query.hardware_version;
        let same_major = hardware >> 16 == library >> 16;
        if same_major {
            library.min(hardware) | 0xFF
        } else {
            0
        }
    })
}

/// zdnn_get_library_version, 0x00[major][minor][patch].
#[unsafe(no_mangle)]
pub extern "C" fn zdnn_get_library_version() -> u32 {
    environment::settings().library().1
}

/// zdnn_get_library_version_str: static text, though not const in C.
#[unsafe(no_mangle)]
pub extern "C" fn zdnn_get_library_version_str() -> *mut c_char {
    environment::settings().library().0.as_ptr().cast_mut()
}
