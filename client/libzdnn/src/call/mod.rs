// SPDX-License-Identifier: Apache-2.0
//! One remote call: from pointers to a message, and from the answer back to memory and status.

pub mod faults;
pub mod operand;
pub mod process_session;
pub mod sanitizer;
pub mod session;
pub mod shortcuts;
pub mod waiting;

use std::ffi::c_void;
use std::ptr::NonNull;

use crate::abi::status::{self, Status};
use crate::abi::{PAGE, is_misaligned};
use crate::call::operand::Operands;
use crate::call::sanitizer::Watch;
use crate::call::session::Session;
use crate::process::{diagnostics, environment};
use crate::rpc::failure::Failure;
use crate::wire::{self, OperationResult, operation::Operation as Arm};

/// The byte that fills the first page of a work area after a call; on the machine the page holds
/// intermediate sticks.
const WORK_AREA_BYTE: u8 = 0x5A;

/// The pages of a save area, ZDNN_8K_SAVEAREA_SIZE.
const SAVE_AREA_PAGES: usize = 2;

/// The likely cause where a new session is lost, too.
const LOST_AT_RANDOM: &str =
    "; if at random, a proxy lacks session persistence (nnpa-session-ticket)";

/// The areas that a program lends to a call, beside the buffers of its tensors.
#[derive(Clone, Copy, Default)]
pub struct Lent {
    save_area: Option<NonNull<c_void>>,
    work_area: Option<NonNull<c_void>>,
}

impl Lent {
    /// Takes a save area, or NULL.
    pub fn save_area(address: *mut c_void) -> Self {
        Self {
            save_area: NonNull::new(address),
            ..Self::default()
        }
    }

    /// Takes a work area, or NULL.
    pub fn work_area(address: *mut c_void) -> Self {
        Self {
            work_area: NonNull::new(address),
            ..Self::default()
        }
    }

    /// Reads and rewrites a byte of each page of the save area, because the instruction stores
    /// there: an area that is not mapped or not writable raises the machine's signal.
    unsafe fn touch_save_area(self) {
        let Some(area) = self.save_area else { return };
        for page in 0..SAVE_AREA_PAGES {
            unsafe {
                let byte = area.cast::<u8>().add(page * PAGE);
                byte.write_volatile(byte.read_volatile());
            }
        }
    }

    /// Writes the first page of a work area, as the library does: programs test for it.
    unsafe fn write_work_area(self) {
        if let Some(area) = self.work_area {
            unsafe { area.cast::<u8>().write_bytes(WORK_AREA_BYTE, PAGE) };
        }
    }
}

fn is_area_misaligned(area: Option<NonNull<c_void>>) -> bool {
    area.is_some_and(|area| is_misaligned(area.as_ptr()))
}

/// Returns whether an operation needs its work area: a pre-computed quantized product does not.
fn needs_work_area(arm: &Arm) -> bool {
    match arm {
        Arm::QuantizedMatmulOp(product) => product.pre_computed != Some(true),
        _ => true,
    }
}

/// Returns the message of one operation.
pub fn operation(arm: Arm, operands: &Operands<'_>, lent: Lent) -> wire::Operation {
    wire::Operation {
        operation: Some(arm),
        buffer_misaligned: operands.misaligned,
        save_area_misaligned: is_area_misaligned(lent.save_area),
        work_area_misaligned: is_area_misaligned(lent.work_area),
        shared_data: operands.arrays.extents(),
        site: Watch::site_of(operands.watch.as_ref()),
        ..wire::Operation::default()
    }
}

/// Runs `attempt`; once more with all its sticks if the server's cache has evicted some of them.
fn with_cache_misses<T>(
    session: &Session,
    attempt: &impl Fn(&Session) -> Result<T, Failure>,
) -> Result<T, Failure> {
    match attempt(session) {
        Err(Failure::Refused { reason, .. }) if reason == "CACHE_MISS" => {
            attempt(&session.without_cache())
        }
        answer => answer,
    }
}

/// Runs `attempt` in the process's session; once more in a new session if the server has lost the
/// first.
pub fn in_session<T>(attempt: impl Fn(&Session) -> Result<T, Failure>) -> Result<T, Failure> {
    let session = process_session::session()?;
    match with_cache_misses(&session, &attempt) {
        Err(failure) if session.is_lost_by(&failure) => {
            with_cache_misses(&*process_session::renew(&session)?, &attempt)
        }
        answer => answer,
    }
}

unsafe fn once(
    name: &str,
    session: &Session,
    build: &dyn Fn(&mut Operands<'_>) -> Arm,
    lent: Lent,
) -> Result<OperationResult, Failure> {
    let mut operands = Operands::new(session);
    let arm = build(&mut operands);
    for operand in &operands.skipped {
        let why = format!("{operand} is NULL: a tensor without dimensions");
        diagnostics::explain_once(name, why);
    }
    let needs_work_area = needs_work_area(&arm);
    let answer = match operands.failure.take() {
        Some(failure) => Err(failure),
        None => session.server.execute(operation(arm, &operands, lent)),
    };
    let result = unsafe { operands.store(answer) }?;
    if result.zdnn_status == status::ZDNN_OK {
        unsafe { lent.touch_save_area() };
        if needs_work_area {
            unsafe { lent.write_work_area() };
        }
    }
    Ok(result)
}

/// Makes a call and prints the library's diagnostics.
pub unsafe fn answer(
    name: &str,
    build: &dyn Fn(&mut Operands<'_>) -> Arm,
    lent: Lent,
) -> Result<OperationResult, Failure> {
    let result = in_session(|session| unsafe { once(name, session, build, lent) })?;
    diagnostics::relay(&result);
    Ok(result)
}

/// Makes a call, and returns its status.
pub unsafe fn status_of(
    name: &str,
    lent: Lent,
    build: &dyn Fn(&mut Operands<'_>) -> Arm,
) -> Status {
    let result = match unsafe { answer(name, build, lent) } {
        Ok(result) => result,
        Err(failure) => return failed(name, &failure),
    };
    if result.zdnn_status == status::ZDNN_UNAVAILABLE_FUNCTION
        && let Some(refusal) = result.refusal
    {
        // Says which machine it needs: the library returns this status without a log line.
        diagnostics::explain_once(name, refusal.text);
    }
    result.zdnn_status
}

/// Prints on stderr why a call has no answer; ends the process where the machine would.
pub fn failed(name: &str, failure: &Failure) -> Status {
    match failure {
        Failure::Unreachable(why) => {
            let settings = environment::settings();
            let text = format!("no server at {}: {why}", settings.endpoint.target);
            if settings.require_server {
                diagnostics::explain(name, &format!("{text}; ZDNN_REQUIRE_SERVER=1: aborting"));
                std::process::abort();
            }
            diagnostics::explain_once(name, text);
            status::ZDNN_UNAVAILABLE_FUNCTION
        }
        Failure::Lost(why) => {
            diagnostics::explain(name, &format!("connection lost: {why}"));
            status::ZDNN_UNSUPPORTED_AIU_EXCEPTION
        }
        Failure::Refused {
            reason,
            kind,
            message,
            ..
        } => {
            let advice = match reason.as_str() {
                "SESSION_NOT_FOUND" => LOST_AT_RANDOM,
                _ => "",
            };
            diagnostics::explain(name, &format!("{reason}: {message}{advice}"));
            if reason == "PROGRAM_CHECK" {
                program_check(kind);
            }
            refused(reason)
        }
    }
}

/// The status for a reason of the contract. Source: deploy/docs/c/programs.md, "When a call fails".
fn refused(reason: &str) -> Status {
    match reason {
        "SESSION_NOT_FOUND"
        | "FUNCTION_NOT_IN_LIBRARY"
        | "FUNCTION_NOT_IMPLEMENTED"
        | "OPERATION_UNKNOWN"
        | "FIELD_UNSPECIFIED" => status::ZDNN_UNAVAILABLE_FUNCTION,
        "TENSOR_QUOTA_EXCEEDED" | "SESSION_QUOTA_EXCEEDED" | "MESSAGE_TOO_LARGE" => {
            status::ZDNN_ALLOCATION_FAILURE
        }
        "TENSOR_NOT_FOUND" => status::ZDNN_INVALID_BUFFER,
        "TENSOR_ID_IN_USE" => status::ZDNN_INVALID_STATE,
        _ => status::ZDNN_UNSUPPORTED_AIU_EXCEPTION,
    }
}

/// Raises the signal of a program check; a handler may catch it, but the call never returns.
fn program_check(kind: &str) -> ! {
    let signal = match kind {
        "access" => libc::SIGSEGV,
        _ => libc::SIGILL,
    };
    unsafe {
        libc::raise(signal);
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
    }
    std::process::abort();
}
