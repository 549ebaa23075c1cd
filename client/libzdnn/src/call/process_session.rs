// SPDX-License-Identifier: Apache-2.0
//! The state of one process: what its environment said, and its session.
//!
//! It hangs on one pointer and carries the process id. A forked child finds another id there, leaves
//! what it inherited alone (locks, sockets, runtime), and starts anew.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;

use crate::call::session::{PATIENCE, Session};
use crate::process::environment::Settings;
use crate::rpc::connection::Link;
use crate::rpc::failure::Failure;

struct Process {
    id: u32,
    settings: Mutex<Settings>,
    opened: Mutex<Opened>,
}

#[derive(Default)]
struct Opened {
    session: Option<Arc<Session>>,
    initialize: bool,
}

static PROCESS: AtomicPtr<Process> = AtomicPtr::new(ptr::null_mut());
/// Processes that a fork left behind stay reachable here: their locks may be held for ever.
#[used] // never read: without this the compiler would drop the stores
static ABANDONED: AtomicPtr<Process> = AtomicPtr::new(ptr::null_mut());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn process() -> &'static Process {
    let id = std::process::id();
    let old = PROCESS.load(Ordering::Acquire);
    if let Some(held) = unsafe { old.as_ref() }
        && held.id == id
    {
        return held;
    }
    let new = Box::into_raw(Box::new(Process {
        id,
        settings: Mutex::new(Settings::first()),
        opened: Mutex::default(),
    }));
    match PROCESS.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire) {
        Ok(left) => {
            ABANDONED.store(left, Ordering::Release);
            unsafe { &*new }
        }
        Err(theirs) => {
            drop(unsafe { Box::from_raw(new) });
            unsafe { &*theirs }
        }
    }
}

/// Returns a copy of what the environment said.
pub fn settings() -> Settings {
    lock(&process().settings).clone()
}

/// Opens a session. A connection that is lost on the way never was one: nothing has run.
fn open(settings: &Settings, known: Option<&Arc<Session>>) -> Result<Session, Failure> {
    let session = match known {
        Some(one) if one.place == settings.place => Session::create(&one.link, settings),
        _ => Session::create(&Arc::new(Link::new(&settings.place)?), settings),
    };
    session.map_err(|failure| match failure {
        Failure::Lost(why) => Failure::Unreachable(why),
        other => other,
    })
}

fn initialize(settings: &Settings, session: &Arc<Session>) -> Result<Session, Failure> {
    let is_same = session.place == settings.place
        && session.library == settings.library
        && session.transfer == settings.transfer;
    if !is_same {
        return open(settings, Some(session));
    }
    match session.initialized(settings) {
        Err(Failure::Refused { reason, .. }) if reason == "SESSION_NOT_FOUND" => {
            open(settings, Some(session))
        }
        other => other,
    }
}

/// Returns the session of this process; connects, or carries out a zdnn_init that waits.
pub fn session() -> Result<Arc<Session>, Failure> {
    let settings = settings();
    let mut opened = lock(&process().opened);
    let session = match &opened.session {
        Some(session) if !opened.initialize => return Ok(Arc::clone(session)),
        Some(session) => initialize(&settings, session)?,
        None => open(&settings, None)?,
    };
    if let Some(old) = &opened.session
        && old.name != session.name
    {
        old.end();
    }
    let session = Arc::new(session);
    *opened = Opened {
        session: Some(Arc::clone(&session)),
        initialize: false,
    };
    Ok(session)
}

/// Replaces a session that the server has forgotten.
pub fn renew(lost: &Session) -> Result<Arc<Session>, Failure> {
    let settings = settings();
    let mut opened = lock(&process().opened);
    match &opened.session {
        Some(other) if other.name != lost.name => Ok(Arc::clone(other)),
        known => {
            let session = Arc::new(open(&settings, known.as_ref())?);
            opened.session = Some(Arc::clone(&session));
            Ok(session)
        }
    }
}

/// Takes over the machine as the server describes it now.
pub fn requery(session: &Session) -> Result<(), Failure> {
    let fresh = Arc::new(session.requeried(&settings())?);
    let mut opened = lock(&process().opened);
    if opened
        .session
        .as_ref()
        .is_some_and(|one| one.name == fresh.name)
    {
        opened.session = Some(fresh);
    }
    Ok(())
}

/// The loader's constructor: reads the environment, no more.
#[unsafe(no_mangle)]
pub extern "C" fn nnpa_load() {
    process();
}

/// zdnn_init: reads the environment; what follows from it waits for the next remote call.
#[unsafe(no_mangle)]
pub extern "C" fn zdnn_init() {
    let process = process();
    lock(&process.settings).read();
    lock(&process.opened).initialize = true;
}

/// The end of the process: tells the server that the session is over, and destroys nothing.
///
/// Another thread does it, because this one's thread-local variables are gone by now. It is not
/// waited for longer than `PATIENCE`.
#[unsafe(no_mangle)]
pub extern "C" fn nnpa_unload() {
    let Some(process) = (unsafe { PROCESS.load(Ordering::Acquire).as_ref() }) else {
        return;
    };
    if process.id != std::process::id() {
        return;
    }
    let session = process
        .opened
        .try_lock()
        .ok()
        .and_then(|opened| opened.session.clone());
    let Some(session) = session else {
        return;
    };
    let (done, waiting) = mpsc::channel();
    let farewell = thread::Builder::new().spawn(move || {
        session.end();
        std::mem::forget(session);
        let _ = done.send(());
    });
    if farewell.is_ok() {
        let _ = waiting.recv_timeout(PATIENCE);
    }
}
