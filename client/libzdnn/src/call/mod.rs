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
use crate::call::session::Session;
use crate::process::{diagnostics, environment};
use crate::rpc::failure::Failure;
use crate::wire::{self, OperationResult, operation::Operation as Arm};

/// What the first page of a work area holds after a call: on the machine, intermediate sticks.
const WORK_AREA_BYTE: u8 = 0x5A;

/// The pages of a save area, ZDNN_8K_SAVEAREA_SIZE.
const SAVE_AREA_PAGES: usize = 2;

/// Memory that a program lends, beside buffers.
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

    /// Stores a byte of each page of a save area as it stands, because the instruction stores
    /// there: a program whose area is no memory, or may not be written, gets the signal.
    unsafe fn touch_save_area(self) {
        let Some(area) = self.save_area else { return };
        for page in 0..SAVE_AREA_PAGES {
            unsafe {
                let byte = area.cast::<u8>().add(page * PAGE);
                byte.write_volatile(byte.read_volatile());
            }
        }
    }

    /// Writes the first page of a work area, as the library does: programs look whether it did.
    unsafe fn write_work_area(self) {
        if let Some(area) = self.work_area {
            unsafe { area.cast::<u8>().write_bytes(WORK_AREA_BYTE, PAGE) };
        }
    }
}

fn is_area_misaligned(area: Option<NonNull<c_void>>) -> bool {
    area.is_some_and(|area| is_misaligned(area.as_ptr()))
}

/// Returns whether an operation needs its work area: products of what is pre-computed do not.
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
        shared_data: operands.shared_data.clone(),
        site: operands
            .watch
            .as_ref()
            .map_or_else(String::new, |watch| watch.site.at.clone()),
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

/// Runs `attempt` in the process's session; once more in a new one if the server has lost it.
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
        diagnostics::explain_once(
            name,
            format!("{operand} is NULL: a tensor without dimensions"),
        );
    }
    let needs_work_area = needs_work_area(&arm);
    let answer = match operands.failure.take() {
        Some(failure) => Err(failure),
        None => session.server.execute(operation(arm, &operands, lent)),
    };
    let result = unsafe { operands.store(answer) }?;
    if result.zdnn_status == status::OK {
        unsafe { lent.touch_save_area() };
        if needs_work_area {
            unsafe { lent.write_work_area() };
        }
    }
    Ok(result)
}

/// Makes a call and prints what the library prints.
///
/// # Safety
/// The operands that `build` names are valid, as C asks.
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
///
/// # Safety
/// As `answer`.
pub unsafe fn status_of(
    name: &str,
    lent: Lent,
    build: &dyn Fn(&mut Operands<'_>) -> Arm,
) -> Status {
    match unsafe { answer(name, build, lent) } {
        Ok(result) => {
            if result.zdnn_status == status::UNAVAILABLE_FUNCTION {
                explain_refusal(name, &result);
            }
            result.zdnn_status
        }
        Err(failure) => failed(name, &failure),
    }
}

/// Prints which machine a function needs: the library returns this status without a log line.
fn explain_refusal(name: &str, result: &OperationResult) {
    if let Some(refusal) = &result.refusal {
        diagnostics::explain_once(name, refusal.text.clone());
    }
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
            status::UNAVAILABLE_FUNCTION
        }
        Failure::Lost(why) => {
            diagnostics::explain(name, &format!("connection lost: {why}"));
            status::UNSUPPORTED_AIU_EXCEPTION
        }
        Failure::Refused {
            reason,
            kind,
            message,
            ..
        } => {
            diagnostics::explain(name, &format!("{reason}: {message}{}", advice(reason)));
            if reason == "PROGRAM_CHECK" {
                program_check(kind);
            }
            refused(reason)
        }
    }
}

/// What is probably wrong, where a new session has not helped.
fn advice(reason: &str) -> &'static str {
    match reason {
        "SESSION_NOT_FOUND" => {
            "; if at random, a proxy lacks session persistence (nnpa-session-ticket)"
        }
        _ => "",
    }
}

/// The status for a reason of the contract. Source: deploy/docs/c/programs.md, "When a call fails".
fn refused(reason: &str) -> Status {
    match reason {
        "SESSION_NOT_FOUND"
        | "FUNCTION_NOT_IN_LIBRARY"
        | "FUNCTION_NOT_IMPLEMENTED"
        | "OPERATION_UNKNOWN"
        | "FIELD_UNSPECIFIED" => status::UNAVAILABLE_FUNCTION,
        "TENSOR_QUOTA_EXCEEDED" | "SESSION_QUOTA_EXCEEDED" | "MESSAGE_TOO_LARGE" => {
            status::ALLOCATION_FAILURE
        }
        "TENSOR_NOT_FOUND" => status::INVALID_BUFFER,
        "TENSOR_ID_IN_USE" => status::INVALID_STATE,
        _ => status::UNSUPPORTED_AIU_EXCEPTION,
    }
}

/// Raises the signal of a program check; a handler may take it, but the call never returns.
fn program_check(kind: &str) -> ! {
    let signal = if kind == "access" {
        libc::SIGSEGV
    } else {
        libc::SIGILL
    };
    unsafe {
        libc::raise(signal);
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
    }
    std::process::abort();
}
