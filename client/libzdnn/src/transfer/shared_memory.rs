// SPDX-License-Identifier: Apache-2.0
//! Memory that a session shares with a server on the same host, and its allocator. Its size is
//! sealed, and its storage allocated before it is used, so that no missing page ever ends either
//! process. Sources: memfd_create(2), "File sealing"; fallocate(2).

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Error, ErrorKind};
use std::os::fd::{AsRawFd, FromRawFd};
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::wire::Extent;

/// Bytes of the memory, at most. It takes storage only as far as it is used.
const MAX_BYTES: u64 = 1 << 30;
const ALIGNMENT: u64 = 4096;

/// Memory of this process, divided into regions of calls and cached contents.
pub struct SharedMemory {
    file: File,
    memory: *mut u8,
    size: usize,
    space: Mutex<Space>,
}

/// The allocator's state.
#[derive(Default)]
struct Space {
    /// Bytes from the beginning that have storage.
    stored: u64,
    /// Where each region begins, and where the page after it does.
    allocated: BTreeMap<u64, u64>,
    /// Whether a lost server may still write: there are no new regions.
    is_retired: bool,
}

// Only the owner of a region touches it in this process.
unsafe impl Send for SharedMemory {}
unsafe impl Sync for SharedMemory {}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        unsafe { libc::munmap(self.memory.cast(), self.size) };
    }
}

impl SharedMemory {
    /// Creates memory for a session that may have `limit` bytes; None if the host refuses.
    pub fn create(limit: u64) -> Option<Self> {
        let size = usize::try_from(MAX_BYTES.min(limit)).ok()?;
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        let file = unsafe { libc::memfd_create(c"nnpa-libzdnn".as_ptr(), flags) };
        if file < 0 {
            return None;
        }
        let file = unsafe { File::from_raw_fd(file) };
        file.set_len(size as u64).ok()?;
        let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
        if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) } < 0 {
            return None;
        }
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_NORESERVE;
        let descriptor = file.as_raw_fd();
        let memory = unsafe { libc::mmap(ptr::null_mut(), size, access, flags, descriptor, 0) };
        if memory == libc::MAP_FAILED {
            return None;
        }
        unsafe { libc::madvise(memory, size, libc::MADV_DONTFORK) }; // a child has none of this
        Some(Self {
            file,
            memory: memory.cast(),
            size,
            space: Mutex::default(),
        })
    }

    /// Returns the descriptor that the server maps.
    pub fn descriptor(&self) -> &File {
        &self.file
    }

    fn space(&self) -> MutexGuard<'_, Space> {
        self.space.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Allocates no more: the server of a lost call may write to its regions at any time.
    pub fn retire(&self) {
        self.space().is_retired = true;
    }

    /// Allocates a region of `size` bytes; None if the memory is full, or the host has no storage.
    pub fn allocate(self: &Arc<Self>, size: u64) -> Option<Region> {
        let offset = self.space().allocate(size, &self.file, self.size as u64)?;
        Some(Region {
            shared: Arc::clone(self),
            extent: Extent { offset, size },
        })
    }

    /// Copies bytes to a new region; None if there is no storage for them.
    pub fn copy(self: &Arc<Self>, bytes: &[u8]) -> Option<Region> {
        let region = self.allocate(bytes.len() as u64)?;
        let address = region.address();
        unsafe { address.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        Some(region)
    }
}

impl Space {
    /// Allocates the first gap that is large enough; returns where it begins.
    fn allocate(&mut self, size: u64, file: &File, limit: u64) -> Option<u64> {
        let size = size.checked_next_multiple_of(ALIGNMENT)?;
        let mut offset = 0;
        for (begin, end) in &self.allocated {
            if offset + size <= *begin {
                break;
            }
            offset = *end;
        }
        let end = offset.checked_add(size)?;
        if size == 0 || end > limit || self.is_retired {
            return None;
        }
        if end > self.stored {
            let (from, more) = (self.stored, end - self.stored);
            let (from, more) = (from.try_into().ok()?, more.try_into().ok()?);
            while unsafe { libc::fallocate(file.as_raw_fd(), 0, from, more) } != 0 {
                if Error::last_os_error().kind() != ErrorKind::Interrupted {
                    return None;
                }
            }
            self.stored = end;
        }
        self.allocated.insert(offset, end);
        Some(offset)
    }
}

/// A part of shared memory, freed when it is dropped.
pub struct Region {
    shared: Arc<SharedMemory>,
    extent: Extent,
}

impl Drop for Region {
    fn drop(&mut self) {
        self.shared.space().allocated.remove(&self.extent.offset);
    }
}

impl Region {
    /// Returns its name in messages.
    pub fn extent(&self) -> Extent {
        self.extent
    }

    fn address(&self) -> *mut u8 {
        let offset = usize::try_from(self.extent.offset).unwrap_or(0);
        self.shared.memory.wrapping_add(offset)
    }

    /// Views it, once the server has written to it.
    pub fn bytes(&self) -> &[u8] {
        let size = usize::try_from(self.extent.size).unwrap_or(0);
        unsafe { std::slice::from_raw_parts(self.address(), size) }
    }
}
