// SPDX-License-Identifier: Apache-2.0
//! Log lines and diagnoses, printed on C's streams.

use std::ffi::c_char;
use std::sync::{Mutex, PoisonError};

use crate::abi::status::{self, Status};
use crate::process::environment;
use crate::process::fork::PerProcess;
use crate::wire::{self, DiagnosticKind, DiagnosticStream, LogLevel};

unsafe extern "C" {
    fn nnpa_print(to_stderr: bool, text: *const c_char, size: usize);
    fn nnpa_backtrace();
}

/// The library's source file to which log lines of local functions belong, for ZDNN_LOGMODULE.
const MODULE: &str = "zdnn.c";
const DIAGNOSIS: &str = "=== zDNN Diagnostic ===";

/// Prints a line, a newline added.
pub fn print(to_stderr: bool, text: &str) {
    unsafe { nnpa_print(to_stderr, text.as_ptr().cast(), text.len()) };
}

/// Prints on stderr why a call failed, whatever the log level.
pub fn explain(name: &str, why: &str) {
    print(true, &format!("nnpa: {name}: {why}"));
}

/// The reason that `explain_once` printed last.
static EXPLAINED: PerProcess<Mutex<String>> = PerProcess::new();

/// Prints on stderr why calls fail, unless the process's last line of this kind says the same.
pub fn explain_once(name: &str, why: String) {
    let last = EXPLAINED.get_or_build(Mutex::default).lock();
    let mut last = last.unwrap_or_else(PoisonError::into_inner);
    if *last != why {
        explain(name, &why);
        *last = why;
    }
}

/// Logs and diagnoses the status of a local function, and returns it.
pub fn log_status(name: &str, status: Status) -> Status {
    if status == status::ZDNN_OK {
        return status;
    }
    let settings = environment::settings();
    let message = status::message(status).to_string_lossy();
    if settings.logs(LogLevel::Error, MODULE) {
        print(true, &format!("ERROR: {name}() (nnpa): {message}"));
    }
    if settings.status_diag == Some(status) {
        let text = format!("{DIAGNOSIS}\nstatus = 0x{status:08x}, {message}\n{name}()");
        print(false, &text);
        unsafe { nnpa_backtrace() };
    }
    status
}

/// Prints the diagnostics of a result; explains range violations.
pub fn relay(result: &wire::OperationResult) {
    for diagnostic in &result.diagnostics {
        let to_stderr = diagnostic.stream() == DiagnosticStream::Stderr;
        print(to_stderr, &diagnostic.text);
        match diagnostic.kind() {
            DiagnosticKind::Log => explain_violation(result, to_stderr),
            DiagnosticKind::StatusDiag => unsafe { nnpa_backtrace() },
            _ => {}
        }
    }
}

/// Prints the reports of the sanitizer, and nothing else.
pub fn report(result: &wire::OperationResult) {
    for diagnostic in &result.diagnostics {
        if diagnostic.kind() == DiagnosticKind::Sanitizer {
            print(true, &diagnostic.text);
        }
    }
}

fn explain_violation(result: &wire::OperationResult, to_stderr: bool) {
    let Some(violation) = &result.range_violation else {
        return;
    };
    for operand in &violation.operands {
        let elements: Vec<String> = operand.elements.iter().map(element).collect();
        let (name, count) = (&operand.operand, operand.count);
        let text = format!("  {name}: {count} not numbers, at {}", elements.join(", "));
        print(to_stderr, &text);
    }
}

fn element(violating: &wire::ViolatingElement) -> String {
    let padding = if violating.padding { " (padding)" } else { "" };
    format!("{:?}{padding} = 0x{:04X}", violating.index, violating.code)
}
