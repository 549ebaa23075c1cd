// SPDX-License-Identifier: Apache-2.0
//! State of one process. A forked child builds its own, and never touches the inherited one: locks,
//! sockets, a runtime.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// State that is built once per process, at first use.
pub struct PerProcess<T: 'static>(AtomicPtr<Owned<T>>);

struct Owned<T> {
    process: u32,
    state: T,
    /// The parent process's state. Its locks may be held for ever, so it is never freed, and stays
    /// reachable.
    _inherited: *mut Self,
}

impl<T> PerProcess<T> {
    /// Starts empty.
    pub const fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// Returns this process's state; None if it is not built yet.
    pub fn current(&self) -> Option<&'static T> {
        unsafe { own(self.0.load(Ordering::Acquire)) }
    }

    /// Returns this process's state; builds it at first use.
    pub fn get_or_build(&self, build: impl FnOnce() -> T) -> &'static T {
        let inherited = self.0.load(Ordering::Acquire);
        if let Some(state) = unsafe { own(inherited) } {
            return state;
        }
        let built = Box::into_raw(Box::new(Owned {
            process: std::process::id(),
            state: build(),
            _inherited: inherited,
        }));
        let exchanged =
            self.0
                .compare_exchange(inherited, built, Ordering::AcqRel, Ordering::Acquire);
        match exchanged {
            Ok(_) => unsafe { &(*built).state },
            Err(winner) => unsafe {
                drop(Box::from_raw(built)); // another thread was faster
                &(*winner).state
            },
        }
    }
}

/// Returns the state, if it is this process's.
unsafe fn own<T>(owned: *const Owned<T>) -> Option<&'static T> {
    let owned = unsafe { owned.as_ref() }?;
    (owned.process == std::process::id()).then_some(&owned.state)
}
