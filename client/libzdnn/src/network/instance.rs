// SPDX-License-Identifier: Apache-2.0
//! Networks of this process, by handle. A handle is a number that is used once; it is never
//! dereferenced.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prost::Message;

use crate::call::session::Session;
use crate::network::ai::{Error, Model};
use crate::network::report::Description;
use crate::network::wire;
use crate::rpc::channel::unary;
use crate::rpc::failure::Failure;

const SERVICE: &str = "/nnpa.network.v1.NetworkService/";

/// Where the error is kept that get_error returns.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Slot {
    Empty,
    /// In the server's slot.
    Server,
    /// Here: the server was not reached.
    Local(Error),
}

/// The mutable state: the first error, and the description that C sees.
pub struct State {
    pub slot: Slot,
    pub description: Description,
}

/// One network.
pub struct Instance {
    process: u32,
    pub session: Arc<Session>,
    pub name: String,
    pub model: &'static Model,
    state: Mutex<State>,
}

static INSTANCES: Mutex<BTreeMap<usize, Arc<Instance>>> = Mutex::new(BTreeMap::new());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Calls a method of NetworkService.
pub fn call<R: Message + Default>(
    session: &Session,
    method: &str,
    message: &impl Message,
) -> Result<R, Failure> {
    unary(&*session.server.channel, &path(method), message)
}

/// Returns the path of a method of NetworkService.
pub fn path(method: &str) -> String {
    format!("{SERVICE}{method}")
}

impl Instance {
    /// Describes a network that the server has created.
    pub fn new(
        session: Arc<Session>,
        name: String,
        model: &'static Model,
        report: &wire::NetworkReport,
    ) -> Self {
        Self {
            process: std::process::id(),
            session,
            name,
            model,
            state: Mutex::new(State {
                slot: Slot::Empty,
                description: Description::of(report),
            }),
        }
    }

    /// Locks the mutable state.
    pub fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Records where the first error is.
    pub fn fail(&self, slot: Slot) {
        let mut state = self.state();
        if state.slot == Slot::Empty {
            state.slot = slot;
        }
    }
}

/// Asks a server to describe a network; None if it has no network of this name.
pub fn info(session: &Session, name: &str) -> Result<Option<wire::NetworkReport>, Failure> {
    let request = wire::GetNetworkInfoRequest {
        session: session.server.name.clone(),
        network: name.to_owned(),
    };
    let answer: wire::GetNetworkInfoResponse = call(session, "GetNetworkInfo", &request)?;
    Ok(answer.report.filter(|_| answer.ok))
}

/// Gives a network a handle.
pub fn register(instance: Instance) -> *mut c_void {
    static NEXT: AtomicUsize = AtomicUsize::new(1);
    let handle = NEXT.fetch_add(1, Ordering::Relaxed);
    lock(&INSTANCES).insert(handle, Arc::new(instance));
    ptr::without_provenance_mut(handle)
}

/// Returns the handle of a network that is registered already.
pub fn registered(session: &str, name: &str) -> Option<*mut c_void> {
    let instances = lock(&INSTANCES);
    let is_same =
        |network: &Instance| network.session.server.name == session && network.name == name;
    let mut networks = instances.iter();
    let (handle, _) = networks.find(|(_, network)| is_same(network))?;
    Some(ptr::without_provenance_mut(*handle))
}

/// Returns the network of a handle; None for another process's or a destroyed network's.
pub fn find(handle: *mut c_void) -> Option<Arc<Instance>> {
    let instance = lock(&INSTANCES).get(&handle.addr()).cloned();
    instance.filter(|instance| instance.process == std::process::id())
}

/// Removes a handle.
pub fn forget(handle: *mut c_void) {
    lock(&INSTANCES).remove(&handle.addr());
}
