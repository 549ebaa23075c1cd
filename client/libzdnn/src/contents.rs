// SPDX-License-Identifier: Apache-2.0
//! What the session's content cache has, as far as this process knows: sticks by their digest.
//!
//! A digest is taken of the bytes in memory at every call, so that it does not matter who wrote
//! them, or where they lie. Order of use and size are those of the server's cache: what it forgets
//! is forgotten here at about the same time, and CACHE_MISS stays rare.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;

/// BLAKE3 of sticks: 256 bits, so that two contents never have the same.
pub type Digest = [u8; blake3::OUT_LEN];

/// Returns the digest of sticks of a transformed type. Their bytes mean the same for all types
/// where they travel as they lie in memory; big-endian ones are swapped by type on arrival.
pub fn digest(sticks: &[u8], kind: u32) -> Digest {
    if cfg!(target_endian = "little") {
        return blake3::hash(sticks).into();
    }
    let mut hasher = blake3::Hasher::new();
    hasher.update(&kind.to_be_bytes()).update(sticks);
    hasher.finalize().into()
}

/// Returns a name that no contents of this process have had, shorter than any digest.
pub fn new_name() -> Bytes {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    u128::from(number).to_be_bytes().to_vec().into()
}

/// Contents that are in the server's cache: their name there, when they were last used, bytes.
struct Held {
    name: Bytes,
    used: u64,
    size: u64,
}

#[derive(Default)]
struct Known {
    by_digest: HashMap<Digest, Held>,
    by_use: BTreeMap<u64, Digest>,
    uses: u64,
    size: u64,
}

impl Known {
    fn forget(&mut self, digest: &Digest) {
        if let Some(held) = self.by_digest.remove(digest) {
            self.by_use.remove(&held.used);
            self.size -= held.size;
        }
    }

    fn put(&mut self, digest: Digest, name: Bytes, size: u64) {
        self.forget(&digest);
        self.uses += 1;
        let used = self.uses;
        self.by_use.insert(used, digest);
        self.by_digest.insert(digest, Held { name, used, size });
        self.size += size;
    }
}

/// The contents of one session that need not travel.
pub struct Contents {
    limit: u64,
    known: Mutex<Known>,
}

impl Contents {
    /// Starts with nothing, for a cache of `limit` bytes; none for a server without one.
    pub fn of(limit: u64) -> Option<Self> {
        (limit != 0).then(|| Self {
            limit,
            known: Mutex::default(),
        })
    }

    /// Tells whether sticks of this size fit the cache.
    pub fn takes(&self, size: u64) -> bool {
        size <= self.limit
    }

    /// Returns the name of contents that the server has.
    pub fn name(&self, digest: &Digest) -> Option<Bytes> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let held = known.by_digest.get(digest)?;
        let (name, size) = (held.name.clone(), held.size);
        known.put(*digest, name.clone(), size);
        Some(name)
    }

    /// Takes note of contents that the server has now.
    pub fn note(&self, digest: Digest, name: Bytes, size: u64) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.put(digest, name, size);
        while known.size > self.limit {
            let Some((_, oldest)) = known.by_use.pop_first() else {
                return;
            };
            known.forget(&oldest);
        }
    }

    /// Forgets everything: the server said that something is missing.
    pub fn clear(&self) {
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = Known::default();
    }
}
