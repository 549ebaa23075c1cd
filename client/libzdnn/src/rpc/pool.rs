// SPDX-License-Identifier: Apache-2.0
//! Memory of messages, reused by later calls: fresh megabytes cost the kernel more than a copy.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

/// Memory beyond this is freed after the call, bytes: twice the largest inline tensor.
pub const KEPT_BYTES: usize = 32 << 20;
const MAX_KEPT: usize = 4;

/// Memory of calls that have ended.
#[derive(Clone, Default)]
pub struct Pool(Arc<Mutex<Vec<Vec<u8>>>>);

/// Memory that returns to its pool when its last view is dropped.
struct Lent {
    memory: Vec<u8>,
    pool: Pool,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.memory
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let mut free = self.pool.0.lock().unwrap_or_else(PoisonError::into_inner);
        if self.memory.capacity() <= KEPT_BYTES && free.len() < MAX_KEPT {
            free.push(std::mem::take(&mut self.memory));
        }
    }
}

impl Pool {
    /// Returns empty memory with room for `size` bytes.
    pub fn take(&self, size: usize) -> Vec<u8> {
        let mut free = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = free.iter().position(|memory| memory.capacity() >= size);
        let at = fits.or_else(|| free.len().checked_sub(1));
        let mut memory = at.map(|at| free.swap_remove(at)).unwrap_or_default();
        memory.clear();
        memory.reserve(size);
        memory
    }

    /// Returns a view of memory, which returns to the pool when the last view is dropped.
    pub fn lend(&self, memory: Vec<u8>) -> Bytes {
        let pool = self.clone();
        Bytes::from_owner(Lent { memory, pool })
    }
}
