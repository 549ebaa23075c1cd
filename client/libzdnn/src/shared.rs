// SPDX-License-Identifier: Apache-2.0
//! Memory that a session shares with a server on the same host: what passes through it does not
//! travel. It is read and written as a file, so that no missing page ever ends the host process.
//! Source: shm_overview(7): objects of POSIX shared memory are files in /dev/shm.

use std::fs::{File, OpenOptions, remove_file};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::wire::{Extent, SharedMemory};

const OBJECTS: &str = "/dev/shm";
/// Bytes of an object. It takes storage only where something was written.
const SIZE: u64 = 1 << 30;
const ALIGNMENT: u64 = 4096;

/// An object that this process made, and who has it for a call.
pub struct Shared {
    file: File,
    name: String,
    busy: Mutex<()>,
}

impl Shared {
    /// Makes an object that only this user can open; none where the host has no such thing.
    pub fn create() -> Option<Self> {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .ok()?
            .as_nanos();
        let name = format!("nnpa-libzdnn-{}-{now:x}", std::process::id());
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .custom_flags(libc::O_CLOEXEC | libc::O_NOFOLLOW)
            .open(format!("{OBJECTS}/{name}"))
            .ok()?;
        let one = Self {
            file,
            name,
            busy: Mutex::new(()),
        };
        if one.file.set_len(SIZE).is_err() {
            one.unlink();
            return None;
        }
        Some(one)
    }

    /// What the server is asked to open.
    pub fn message(&self) -> SharedMemory {
        SharedMemory {
            name: self.name.clone(),
            size: SIZE,
        }
    }

    /// Takes the name away: who has opened the object keeps it, nobody else will.
    pub fn unlink(&self) {
        drop(remove_file(format!("{OBJECTS}/{}", self.name)));
    }

    /// Gives all of it to one call; none while another has it.
    pub fn room(&self) -> Option<Room<'_>> {
        let guard = match self.busy.try_lock() {
            Ok(guard) => guard,
            Err(std::sync::TryLockError::Poisoned(poisoned)) => PoisonError::into_inner(poisoned),
            Err(std::sync::TryLockError::WouldBlock) => return None,
        };
        Some(Room {
            shared: self,
            next: 0,
            _guard: guard,
        })
    }
}

/// The shared memory during one call: places are given out from its beginning.
pub struct Room<'a> {
    shared: &'a Shared,
    next: u64,
    _guard: MutexGuard<'a, ()>,
}

impl Room<'_> {
    /// Returns a place for so many bytes; none where it is full.
    pub fn place(&mut self, size: u64) -> Option<Extent> {
        let offset = self.next;
        let end = offset.checked_add(size)?;
        if size == 0 || end > SIZE {
            return None;
        }
        self.next = end.next_multiple_of(ALIGNMENT);
        Some(Extent { offset, size })
    }

    /// Returns a place that holds these bytes now; none where there is no storage for them.
    pub fn put(&mut self, bytes: &[u8]) -> Option<Extent> {
        let place = self.place(bytes.len() as u64)?;
        self.shared.file.write_all_at(bytes, place.offset).ok()?;
        Some(place)
    }

    /// Copies what the server put into a place.
    ///
    /// # Safety
    /// `target` is valid for the place's bytes.
    pub unsafe fn take(&self, place: &Extent, target: *mut u8) -> std::io::Result<()> {
        let size = usize::try_from(place.size).unwrap_or(0);
        let target = unsafe { std::slice::from_raw_parts_mut(target, size) };
        self.shared.file.read_exact_at(target, place.offset)
    }
}
