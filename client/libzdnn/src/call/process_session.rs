// SPDX-License-Identifier: Apache-2.0
//! The session of this process: opened by the first remote call, renewed when the server has lost
//! it, deleted at the end of the process.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;

use crate::call::session::Session;
use crate::process::environment::{self, Settings};
use crate::process::fork::PerProcess;
use crate::process::heap;
use crate::rpc::channel::END_TIMEOUT;
use crate::rpc::connection::Connection;
use crate::rpc::failure::Failure;
use crate::rpc::socket;

#[derive(Default)]
struct Opened {
    session: Option<Arc<Session>>,
    /// Whether zdnn_init was called since the last remote call.
    initialize: bool,
}

static OPENED: PerProcess<Mutex<Opened>> = PerProcess::new();

fn opened() -> MutexGuard<'static, Opened> {
    let opened = OPENED.get_or_build(Mutex::default).lock();
    opened.unwrap_or_else(PoisonError::into_inner)
}

/// Opens a session, on the last session's connection if it is to the same server. A connection that
/// breaks meanwhile counts as an unreachable server, because nothing has run.
fn open(settings: &Settings, last: Option<&Arc<Session>>) -> Result<Session, Failure> {
    let session = match last {
        Some(last) if last.is_at(&settings.endpoint) => {
            Session::create(&last.server.connection, settings)
        }
        _ => Session::create(&Arc::new(Connection::new(&settings.endpoint)?), settings),
    };
    session.map_err(|failure| match failure {
        Failure::Lost(why) => Failure::Unreachable(why),
        failure => failure,
    })
}

fn initialize(settings: &Settings, session: &Arc<Session>) -> Result<Session, Failure> {
    if !session.suits(settings) {
        return open(settings, Some(session));
    }
    match session.initialized(settings) {
        Err(failure) if session.is_lost_by(&failure) => open(settings, Some(session)),
        initialized => initialized,
    }
}

/// Returns the session of this process; first connects, or carries out a pending zdnn_init.
pub fn session() -> Result<Arc<Session>, Failure> {
    let settings = environment::settings();
    let mut opened = opened();
    let session = match &opened.session {
        Some(session) if !opened.initialize => return Ok(Arc::clone(session)),
        Some(session) => initialize(&settings, session)?,
        None => open(&settings, None)?,
    };
    if let Some(last) = &opened.session
        && last.server.name != session.server.name
    {
        last.end();
    }
    let session = Arc::new(session);
    *opened = Opened {
        session: Some(Arc::clone(&session)),
        initialize: false,
    };
    Ok(session)
}

/// Replaces a session that the server has lost.
pub fn renew(lost: &Session) -> Result<Arc<Session>, Failure> {
    let settings = environment::settings();
    let mut opened = opened();
    match &opened.session {
        Some(session) if session.server.name != lost.server.name => Ok(Arc::clone(session)),
        last => {
            let session = Arc::new(open(&settings, last.as_ref())?);
            opened.session = Some(Arc::clone(&session));
            Ok(session)
        }
    }
}

/// Takes over the machine as the server describes it now.
pub fn requery(session: &Session) -> Result<(), Failure> {
    let requeried = Arc::new(session.requeried()?);
    let mut opened = opened();
    let is_same = |session: &Arc<Session>| session.server.name == requeried.server.name;
    if opened.session.as_ref().is_some_and(is_same) {
        opened.session = Some(requeried);
    }
    Ok(())
}

/// The loader's constructor: prepares for forks and reads the environment, no more.
#[unsafe(no_mangle)]
pub extern "C" fn nnpa_load() {
    heap::register_fork_handlers();
    socket::register_fork_handler();
    environment::settings();
}

/// zdnn_init: reads the environment; the next remote call applies it to the session.
#[unsafe(no_mangle)]
pub extern "C" fn zdnn_init() {
    environment::read_again();
    opened().initialize = true;
}

/// Deletes the session at the end of the process, and destroys nothing.
///
/// Another thread makes the call, because the thread-local variables of this thread are gone by
/// now. It gets at most `END_TIMEOUT`.
#[unsafe(no_mangle)]
pub extern "C" fn nnpa_unload() {
    let opened = OPENED.current().and_then(|opened| opened.try_lock().ok());
    let Some(session) = opened.and_then(|opened| opened.session.clone()) else {
        return;
    };
    let (done, waiting) = mpsc::channel();
    let farewell = thread::Builder::new().spawn(move || {
        session.end();
        std::mem::forget(session);
        let _ = done.send(());
    });
    if farewell.is_ok() {
        let _ = waiting.recv_timeout(END_TIMEOUT);
    }
}
