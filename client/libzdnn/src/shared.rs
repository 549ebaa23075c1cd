// SPDX-License-Identifier: Apache-2.0
//! Memory that a session shares with a server on the same host: what passes through it does not
//! travel. Its size is sealed and its storage taken before it is used, so that no missing page ever
//! ends either process. Sources: memfd_create(2), "File sealing"; fallocate(2).

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::wire::Extent;

/// Bytes of the memory. It takes storage only as far as it is used.
const SIZE: usize = 1 << 30;
const ALIGNMENT: u64 = 4096;

/// Memory of this process, and who has it for a call.
pub struct Shared {
    file: File,
    memory: *mut u8,
    /// Bytes from the beginning that have storage.
    stored: Mutex<u64>,
}

// The memory is touched by whoever has the lock.
unsafe impl Send for Shared {}
unsafe impl Sync for Shared {}

impl Drop for Shared {
    fn drop(&mut self) {
        unsafe { libc::munmap(self.memory.cast(), SIZE) };
    }
}

impl Shared {
    /// Makes memory; none where the host has no such thing.
    pub fn create() -> Option<Self> {
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        let file = unsafe { libc::memfd_create(c"nnpa-libzdnn".as_ptr(), flags) };
        if file < 0 {
            return None;
        }
        let file = unsafe { File::from_raw_fd(file) };
        file.set_len(SIZE as u64).ok()?;
        let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
        if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) } < 0 {
            return None;
        }
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_NORESERVE;
        let descriptor = file.as_raw_fd();
        let memory = unsafe { libc::mmap(ptr::null_mut(), SIZE, access, flags, descriptor, 0) };
        if memory == libc::MAP_FAILED {
            return None;
        }
        unsafe { libc::madvise(memory, SIZE, libc::MADV_DONTFORK) }; // a child has none of this
        Some(Self {
            file,
            memory: memory.cast(),
            stored: Mutex::default(),
        })
    }

    /// What the server maps.
    pub fn descriptor(&self) -> &File {
        &self.file
    }

    /// Gives all of it to one call; none while another has it.
    pub fn room(&self) -> Option<Room<'_>> {
        let stored = match self.stored.try_lock() {
            Ok(guard) => guard,
            Err(std::sync::TryLockError::Poisoned(poisoned)) => PoisonError::into_inner(poisoned),
            Err(std::sync::TryLockError::WouldBlock) => return None,
        };
        Some(Room {
            shared: self,
            next: 0,
            stored,
        })
    }
}

/// The shared memory during one call: places are given out from its beginning.
pub struct Room<'a> {
    shared: &'a Shared,
    next: u64,
    stored: MutexGuard<'a, u64>,
}

impl Room<'_> {
    /// Returns a place for so many bytes; none where it is full, or the host has no storage.
    pub fn place(&mut self, size: u64) -> Option<Extent> {
        let offset = self.next;
        let end = offset.checked_add(size)?.next_multiple_of(ALIGNMENT);
        if size == 0 || end > SIZE as u64 {
            return None;
        }
        if end > *self.stored {
            let file = self.shared.file.as_raw_fd();
            let (from, more) = (*self.stored, end - *self.stored);
            let (from, more) = (from.try_into().ok()?, more.try_into().ok()?);
            if unsafe { libc::fallocate(file, 0, from, more) } != 0 {
                return None;
            }
            *self.stored = end;
        }
        self.next = end;
        Some(Extent { offset, size })
    }

    fn at(&self, place: &Extent) -> *mut u8 {
        let offset = usize::try_from(place.offset).unwrap_or(0);
        self.shared.memory.wrapping_add(offset)
    }

    /// Returns a place that holds these bytes now; none where there is no storage for them.
    pub fn put(&mut self, bytes: &[u8]) -> Option<Extent> {
        let place = self.place(bytes.len() as u64)?;
        let target = self.at(&place);
        unsafe { target.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        Some(place)
    }

    /// Copies what the server put into a place.
    ///
    /// # Safety
    /// `target` is valid for the place's bytes, and the place was given out for this call.
    pub unsafe fn take(&self, place: &Extent, target: *mut u8) {
        let size = usize::try_from(place.size).unwrap_or(0);
        unsafe { target.copy_from_nonoverlapping(self.at(place), size) };
    }
}
