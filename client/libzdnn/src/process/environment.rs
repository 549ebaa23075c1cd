// SPDX-License-Identifier: Apache-2.0
//! The environment variables, parsed as the library parses them.
//!
//! Source: zDNN API Reference 1.2.0, "Runtime Environment Variables"; zDNN library behaviour.

use std::ffi::{CStr, CString};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::abi::memory;
use crate::process::fork::PerProcess;
use crate::process::shortcuts::{Shortcuts, Transfer, parse_plain};
use crate::wire::LogLevel;

/// Where a server listens by default.
const DEFAULT_SERVER: &str = "127.0.0.1:50051";
const MAX_LOG_MODULE: usize = 1023;
/// Releases that a session can be of, with their numbers.
pub const LIBRARIES: [(&CStr, u32); 6] = [
    (c"1.0.0", 0x01_0000),
    (c"1.0.1", 0x01_0001),
    (c"1.1.0", 0x01_0100),
    (c"1.1.1", 0x01_0101),
    (c"1.1.2", 0x01_0102),
    (c"1.2.0", 0x01_0200),
];

/// A server's address, and the program's credentials for it.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Endpoint {
    pub target: String,
    pub tls_ca: Option<String>,
    pub tls_cert: Option<String>,
    pub tls_key: Option<String>,
    pub token: Option<String>,
}

/// The variables' values. An option that was never set is None, or the default.
#[derive(Clone, Default)]
pub struct Settings {
    pub endpoint: Endpoint,
    pub machine: Option<String>,
    pub library: Option<String>,
    pub require_server: bool,
    pub precheck: bool,
    pub status_diag: Option<u32>,
    pub log_level: Option<LogLevel>,
    pub log_module: String,
    pub program_check_status: bool,
    transfer: Transfer,
    /// The names of shortcuts that are not used: ZDNN_PLAIN.
    plain: String,
    /// The trace that new sessions join, empty for none: ZDNN_TRACE.
    pub trace: String,
    /// The ticket of that trace behind a proxy, empty for none: ZDNN_TICKET.
    pub ticket: String,
    /// How many seconds to wait for a full server: ZDNN_WAIT.
    wait: String,
    /// The file of fault rules: ZDNN_FAULTS.
    pub faults: Option<String>,
    /// Whether new sessions look for misused tensors: ZDNN_SANITIZE.
    pub sanitize: bool,
    /// Whether new sessions end soon after this process, however it ends: ZDNN_LEASE.
    pub lease: bool,
}

static SETTINGS: PerProcess<Mutex<Settings>> = PerProcess::new();

fn process_settings() -> MutexGuard<'static, Settings> {
    let settings = SETTINGS.get_or_build(|| Mutex::new(Settings::first()));
    settings.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns a copy of this process's settings.
pub fn settings() -> Settings {
    process_settings().clone()
}

/// Reads the environment again, as zdnn_init does.
pub fn read_again() {
    process_settings().read();
}

fn variable(name: &str) -> Option<String> {
    let name = CString::new(name).ok()?;
    unsafe { memory::text(libc::getenv(name.as_ptr())) }
}

fn replace<T>(target: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *target = value;
    }
}

/// Parses decimal, or hexadecimal after 0x, as strtoll does; the whole value must be a number.
fn number(text: &str) -> Option<u32> {
    if text.is_empty() {
        return Some(0);
    }
    let hexadecimal = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let parsed = match hexadecimal {
        Some(digits) => i128::from_str_radix(digits, 16),
        None => text.trim_start().parse::<i128>(),
    };
    let clamped = parsed.ok()?.clamp(i64::MIN.into(), i64::MAX.into());
    u32::try_from(clamped & 0xFFFF_FFFF).ok()
}

fn level(text: &str) -> Option<LogLevel> {
    let level = LogLevel::from_str_name(&format!("LOG_LEVEL_{}", text.to_ascii_uppercase()));
    level.filter(|level| *level != LogLevel::Unspecified)
}

fn shortened(mut text: String) -> String {
    let mut end = text.len().min(MAX_LOG_MODULE);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text
}

impl Settings {
    /// Reads the environment for the first time.
    pub fn first() -> Self {
        let mut settings = Self {
            lease: true,
            ..Self::default()
        };
        settings.endpoint.target = DEFAULT_SERVER.to_owned();
        settings.read();
        settings
    }

    /// Reads the environment again, as zdnn_init does; variables that are not set change nothing.
    pub fn read(&mut self) {
        for (target, name) in [
            (&mut self.endpoint.target, "ZDNN_SERVER"),
            (&mut self.trace, "ZDNN_TRACE"),
            (&mut self.ticket, "ZDNN_TICKET"),
            (&mut self.wait, "ZDNN_WAIT"),
            (&mut self.plain, "ZDNN_PLAIN"),
        ] {
            replace(target, variable(name));
        }
        for (target, name) in [
            (&mut self.endpoint.tls_ca, "ZDNN_TLS_CA"),
            (&mut self.endpoint.tls_cert, "ZDNN_TLS_CERT"),
            (&mut self.endpoint.tls_key, "ZDNN_TLS_KEY"),
            (&mut self.endpoint.token, "ZDNN_TOKEN"),
            (&mut self.machine, "ZDNN_MACHINE"),
            (&mut self.library, "ZDNN_LIBRARY_VERSION"),
            (&mut self.faults, "ZDNN_FAULTS"),
        ] {
            if let Some(value) = variable(name) {
                *target = Some(value).filter(|text| !text.is_empty());
            }
        }
        for (target, name) in [
            (&mut self.require_server, "ZDNN_REQUIRE_SERVER"),
            (&mut self.sanitize, "ZDNN_SANITIZE"),
        ] {
            replace(target, variable(name).map(|text| text == "1"));
        }
        let status = variable("ZDNN_PROGRAM_CHECK").map(|text| text == "status");
        replace(&mut self.program_check_status, status);
        let precheck = variable("ZDNN_ENABLE_PRECHECK");
        let precheck = precheck.map(|text| text.eq_ignore_ascii_case("true"));
        replace(&mut self.precheck, precheck);
        let status_diag = variable("ZDNN_STATUS_DIAG").and_then(|text| number(&text));
        self.status_diag = status_diag.or(self.status_diag);
        let log_level = variable("ZDNN_LOGLEVEL").and_then(|text| level(&text));
        self.log_level = log_level.or(self.log_level);
        let log_module = variable("ZDNN_LOGMODULE").map(shortened);
        replace(&mut self.log_module, log_module);
        let lease = variable("ZDNN_LEASE").map(|text| text != "0");
        replace(&mut self.lease, lease);
        let transfer = variable("ZDNN_TRANSFER").and_then(|text| Transfer::parse(&text));
        replace(&mut self.transfer, transfer);
    }

    /// Returns the shortcuts in use, or the refusal of a name in ZDNN_PLAIN.
    pub fn shortcuts(&self) -> Result<Shortcuts, String> {
        let removed = parse_plain(&self.plain)?;
        Ok(Shortcuts::new(self.transfer, &removed))
    }

    /// Returns how long to wait for a full server, or why ZDNN_WAIT is refused.
    pub fn wait(&self) -> Result<Duration, String> {
        if self.wait.is_empty() {
            return Ok(Duration::ZERO);
        }
        let number = self.wait.parse().ok();
        let duration = number.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let refusal = || format!("ZDNN_WAIT: {}: expected seconds, 0 or more", self.wait);
        duration.ok_or_else(refusal)
    }

    /// Returns the library's version, as text and number.
    pub fn library(&self) -> (&'static CStr, u32) {
        let release = self.library.as_deref().unwrap_or("1.2.0");
        let mut rows = LIBRARIES.iter();
        let row = rows.find(|(name, _)| name.to_bytes() == release.as_bytes());
        *row.unwrap_or(&LIBRARIES[LIBRARIES.len() - 1])
    }

    /// Returns whether a line of this level, from this source file of the library, is printed.
    pub fn logs(&self, level: LogLevel, module: &str) -> bool {
        self.log_level.is_none_or(|threshold| {
            threshold as i32 >= level as i32
                && (self.log_module.is_empty() || self.log_module.contains(module))
        })
    }
}
