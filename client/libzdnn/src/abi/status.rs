// SPDX-License-Identifier: Apache-2.0
//! Statuses and their messages. Source: zDNN API Reference 1.2.0, "zDNN Statuses" and
//! zdnn_get_status_message.

use std::ffi::{CStr, c_char};

/// `zdnn_status`: an open number.
pub type Status = u32;

pub const OK: Status = 0x00000000;
pub const INVALID_SHAPE: Status = 0x00040001;
pub const INVALID_LAYOUT: Status = 0x00040002;
pub const INVALID_TYPE: Status = 0x00040003;
pub const INVALID_FORMAT: Status = 0x00040004;
pub const INVALID_CONCAT_INFO: Status = 0x00040006;
pub const INVALID_TRANSFORM_TYPE: Status = 0x0004000D;
pub const ALLOCATION_FAILURE: Status = 0x00100001;
pub const INVALID_BUFFER: Status = 0x00100002;
pub const INVALID_STATE: Status = 0x00100004;
pub const UNSUPPORTED_AIU_EXCEPTION: Status = 0x00100005;
pub const UNAVAILABLE_FUNCTION: Status = 0x000C0002;

const UNKNOWN: &CStr = c"(Status string is not defined.)";

/// Every status with a name, by number.
const MESSAGES: &[(Status, &CStr)] = &[
    (0x00000000, c"ZDNN_OK: Success."),
    (0x00020001, c"ZDNN_ELEMENT_RANGE_VIOLATION: One or more output tensor values were not valid."),
    (
        0x00040001,
        c"ZDNN_INVALID_SHAPE: Invalid shape in one (or more) of the input/output tensor(s).",
    ),
    (
        0x00040002,
        c"ZDNN_INVALID_LAYOUT: Invalid layout in one (or more) of the input/output tensor(s).",
    ),
    (
        0x00040003,
        c"ZDNN_INVALID_TYPE: Invalid type in one (or more) of the input/output tensor(s).",
    ),
    (
        0x00040004,
        c"ZDNN_INVALID_FORMAT: Invalid format in one (or more) of the input/output tensor(s).",
    ),
    (0x00040005, c"ZDNN_INVALID_DIRECTION: Invalid RNN direction."),
    (0x00040006, c"ZDNN_INVALID_CONCAT_INFO: Invalid concatenation info."),
    (
        0x00040007,
        c"ZDNN_INVALID_STRIDE_PADDING: Padding type is not valid for the current stride inputs.",
    ),
    (0x00040008, c"ZDNN_INVALID_STRIDES: Invalid stride height or width."),
    (0x00040009, c"ZDNN_MISALIGNED_PARMBLOCK: NNPA parameter block is not on doubleword boundary."),
    (0x0004000A, c"ZDNN_INVALID_CLIPPING_VALUE: Invalid clipping for the specified operation."),
    (
        0x0004000B,
        c"ZDNN_INVALID_ADJUSTMENT_FACTOR: Invalid adjustment for the specified operation.",
    ),
    (0x0004000C, c"ZDNN_INVALID_EPSILON: Invalid epsilon for the specified operation."),
    (0x0004000D, c"ZDNN_INVALID_TRANSFORM_TYPE: Invalid transformation type."),
    (0x0004000E, c"ZDNN_INVALID_BETA: Invalid beta value for the specified operation."),
    (0x0004000F, c"ZDNN_INVALID_GAMMA: Invalid gamma value for the specified operation."),
    (
        0x00040010,
        c"ZDNN_INVALID_BESSEL_CORRECTION: Invalid bessel correction value for the specified operation.",
    ),
    (0x00040011, c"ZDNN_INVALID_SCALE: Invalid scale value for the specified operation."),
    (0x00040012, c"ZDNN_INVALID_OFFSET: Invalid offset value for the specified operation."),
    (0x00100001, c"ZDNN_ALLOCATION_FAILURE: Can not allocate storage."),
    (
        0x00100002,
        c"ZDNN_INVALID_BUFFER: Buffer address is NULL or not on 4K-byte boundary, or insufficient buffer size.",
    ),
    (0x00100003, c"ZDNN_CONVERT_FAILURE: Floating point data conversion failure."),
    (0x00100004, c"ZDNN_INVALID_STATE: Invalid zTensor state."),
    (
        0x00100005,
        c"ZDNN_UNSUPPORTED_AIU_EXCEPTION: zAIU operation returned an unexpected exception.",
    ),
    (
        0x000C0001,
        c"ZDNN_UNSUPPORTED_PARMBLOCK: NNPA parameter block format is not supported by the model.",
    ),
    (
        0x000C0002,
        c"ZDNN_UNAVAILABLE_FUNCTION: Specified NNPA function is not defined or installed on the machine.",
    ),
    (0x000C0010, c"ZDNN_UNSUPPORTED_FORMAT: Specified tensor data layout format is not supported."),
    (0x000C0011, c"ZDNN_UNSUPPORTED_TYPE: Specified tensor data type is not supported."),
    (
        0x000C0012,
        c"ZDNN_EXCEEDS_MDIS: Tensor dimension exceeds maximum dimension index size (MDIS).",
    ),
    (
        0x000C0013,
        c"ZDNN_EXCEEDS_MTS: Total number of elements in tensor exceeds maximum tensor size (MTS).",
    ),
    (0x000C0014, c"ZDNN_MISALIGNED_TENSOR: Tensor address is not on 4K-byte boundary."),
    (
        0x000C0015,
        c"ZDNN_MISALIGNED_SAVEAREA: Function specific save area address is not on 4K-byte boundary.",
    ),
    (0x000CF000, c"ZDNN_FUNC_RC_F000: Function specific response code (F000)."),
    (0x000CF001, c"ZDNN_FUNC_RC_F001: Function specific response code (F001)."),
    (0x000CF002, c"ZDNN_FUNC_RC_F002: Function specific response code (F002)."),
    (0x000CF003, c"ZDNN_FUNC_RC_F003: Function specific response code (F003)."),
    (0x000CF004, c"ZDNN_FUNC_RC_F004: Function specific response code (F004)."),
    (0x000CF005, c"ZDNN_FUNC_RC_F005: Function specific response code (F005)."),
    (0x000CF006, c"ZDNN_FUNC_RC_F006: Function specific response code (F006)."),
    (0x000CF007, c"ZDNN_FUNC_RC_F007: Function specific response code (F007)."),
    (0x000CF008, c"ZDNN_FUNC_RC_F008: Function specific response code (F008)."),
    (0x000CF009, c"ZDNN_FUNC_RC_F009: Function specific response code (F009)."),
];

/// Returns the static text of a status.
pub fn message(status: Status) -> &'static CStr {
    MESSAGES
        .iter()
        .find(|(number, _)| *number == status)
        .map_or(UNKNOWN, |(_, text)| text)
}

/// zdnn_get_status_message: static text, also for numbers without a name.
#[unsafe(no_mangle)]
pub extern "C" fn zdnn_get_status_message(status: Status) -> *const c_char {
    message(status).as_ptr()
}
