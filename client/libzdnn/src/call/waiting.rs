// SPDX-License-Identifier: Apache-2.0
//! Waiting for a full server: with ZDNN_WAIT, CreateSession is repeated after the delay that the
//! server names.

use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::process::diagnostics;
use crate::process::environment::Settings;
use crate::rpc::failure::Failure;

/// Returns 0.5 to 1.5 times a delay, so that waiting clients spread out.
fn jittered(delay: Duration) -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let noise = now.map_or(0, |now| now.subsec_micros() % 1000);
    let process = std::process::id() % 1000;
    delay / 2 + delay * ((noise + process) % 1000) / 1000
}

/// Creates a session; repeats the call while the server is full, at most for the time of ZDNN_WAIT.
pub fn for_a_place<T>(
    settings: &Settings,
    create: &dyn Fn() -> Result<T, Failure>,
) -> Result<T, Failure> {
    let wait = settings.wait().unwrap_or_else(|why| {
        diagnostics::explain("CreateSession", &why);
        Duration::ZERO
    });
    let (began, mut is_told) = (Instant::now(), false);
    loop {
        let answer = create();
        let left = wait.saturating_sub(began.elapsed());
        let Err(Failure::Refused {
            reason,
            retry: Some(delay),
            ..
        }) = &answer
        else {
            return answer;
        };
        if reason != "SESSION_QUOTA_EXCEEDED" || left.is_zero() {
            return answer;
        }
        if !is_told {
            let (target, most) = (&settings.endpoint.target, wait.as_secs_f64());
            let text = format!("{target} is full: waiting {most} s at most for a session");
            diagnostics::explain("CreateSession", &text);
            is_told = true;
        }
        thread::sleep(jittered(*delay).min(left));
    }
}
