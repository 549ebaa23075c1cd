// SPDX-License-Identifier: Apache-2.0
//! What the session's content cache has, as far as this process knows: sticks by their digest.
//!
//! A digest is taken of the bytes in memory at every call, so that it does not matter who wrote
//! them, or where they lie. Order of use and size are those of the server's cache: what it forgets
//! is forgotten here at about the same time, and CACHE_MISS stays rare.
//!
//! Of large outputs that came last there are copies. To compare bytes with one takes a tenth to half
//! of the time of their digest, and most outputs are the next input, or never one.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

/// BLAKE3 of sticks: 256 bits, so that two contents never have the same.
pub type Digest = [u8; blake3::OUT_LEN];

/// Sticks of fewer bytes have their digest about as soon as they are compared.
const LEAST_COPIED: usize = 64 << 10;
/// Bytes of all copies, at most.
const MOST_COPIED: usize = 16 << 20;
const MOST_COPIES: usize = 4;
/// Buffers whose last output is known.
const MOST_PLACES: usize = 4096;

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

/// Contents that are in the server's cache: when they were last used, bytes, and their digest, if
/// one was taken.
struct Held {
    used: u64,
    size: u64,
    digest: Option<Digest>,
}

/// An output as it came, and its name.
struct Copied {
    name: Bytes,
    kind: u32,
    sticks: Vec<u8>,
}

#[derive(Default)]
struct Known {
    by_name: HashMap<Bytes, Held>,
    by_digest: HashMap<Digest, Bytes>,
    by_use: BTreeMap<u64, Bytes>,
    uses: u64,
    size: u64,
    /// All of them are held; what was used last is the last.
    copies: Vec<Copied>,
    /// The last output by the address of its buffer.
    by_place: HashMap<usize, Bytes>,
}

impl Known {
    fn forget(&mut self, name: &Bytes) -> Option<Held> {
        let held = self.by_name.remove(name)?;
        self.by_use.remove(&held.used);
        self.size -= held.size;
        if let Some(digest) = &held.digest {
            self.by_digest.remove(digest);
        }
        Some(held)
    }

    fn hold(&mut self, name: Bytes, size: u64, digest: Option<Digest>) {
        self.forget(&name);
        if let Some(digest) = digest {
            self.learn(&name, digest);
        }
        self.uses += 1;
        let used = self.uses;
        self.by_use.insert(used, name.clone());
        self.by_name.insert(name, Held { used, size, digest });
        self.size += size;
    }

    /// Gives a digest to a name; another name that had it is forgotten.
    fn learn(&mut self, name: &Bytes, digest: Digest) {
        if let Some(other) = self.by_digest.get(&digest).cloned() {
            self.forget(&other);
        }
        self.by_digest.insert(digest, name.clone());
    }

    fn touch(&mut self, name: &Bytes) {
        if let Some(Held { size, digest, .. }) = self.forget(name) {
            self.hold(name.clone(), size, digest);
        }
    }

    fn shrink(&mut self, most: u64) {
        while self.size > most {
            let Some((_, oldest)) = self.by_use.pop_first() else {
                return;
            };
            self.forget(&oldest);
            self.copies.retain(|one| one.name != oldest);
        }
    }

    /// Takes the copy that has these bytes out.
    fn same(&mut self, sticks: &[u8], kind: u32) -> Option<Copied> {
        let is_same = |one: &Copied| {
            (cfg!(target_endian = "little") || one.kind == kind) && one.sticks == sticks
        };
        let at = self.copies.iter().position(is_same)?;
        Some(self.copies.remove(at))
    }

    /// Returns memory for a copy; the digest is taken of those that make room for it.
    fn room(&mut self, size: usize) -> Vec<u8> {
        let mut memory = Vec::new();
        let mut used: usize = self.copies.iter().map(|one| one.sticks.len()).sum();
        while self.copies.len() >= MOST_COPIES || used + size > MOST_COPIED {
            let Copied { name, kind, sticks } = self.copies.remove(0);
            used -= sticks.len();
            let digest = digest(&sticks, kind);
            self.learn(&name, digest);
            if let Some(held) = self.by_name.get_mut(&name) {
                held.digest = Some(digest);
            }
            memory = sticks;
        }
        memory.clear();
        memory
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

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells whether sticks of this size fit the cache.
    pub fn takes(&self, size: u64) -> bool {
        size <= self.limit
    }

    /// Returns the name of contents that the server has, else their digest.
    pub fn name(&self, sticks: &[u8], kind: u32) -> Result<Bytes, Digest> {
        if let Some(name) = self.name_of_copy(sticks, kind) {
            return Ok(name);
        }
        let digest = digest(sticks, kind);
        let mut known = self.known();
        let name = known.by_digest.get(&digest).cloned().ok_or(digest)?;
        known.touch(&name);
        Ok(name)
    }

    fn name_of_copy(&self, sticks: &[u8], kind: u32) -> Option<Bytes> {
        let mut known = self.known();
        let copy = known.same(sticks, kind)?;
        let name = copy.name.clone();
        known.copies.push(copy);
        known.touch(&name);
        Some(name)
    }

    /// Takes note of contents that were sent: their digest is their name.
    pub fn note_sent(&self, digest: Digest, size: u64) {
        let mut known = self.known();
        known.hold(Bytes::copy_from_slice(&digest), size, Some(digest));
        known.shrink(self.limit);
    }

    /// Returns the name of the output that was last written to a place, if it is held: the next one
    /// there is held in its stead. Else the server's memory for outputs that nobody can see any more
    /// would grow to all of its cache, and be cold.
    pub fn written_to(&self, place: usize) -> Bytes {
        let known = self.known();
        let name = known.by_place.get(&place);
        let held = name.filter(|one| known.by_name.contains_key(*one));
        held.cloned().unwrap_or_default()
    }

    /// Takes note of an output that the server keeps, and of the one that it forgets for it.
    pub fn note_output(
        &self,
        name: Bytes,
        place: usize,
        instead_of: &Bytes,
        sticks: &[u8],
        kind: u32,
    ) {
        self.note_kept(name.clone(), sticks, kind);
        let mut known = self.known();
        known.forget(instead_of);
        known.copies.retain(|one| one.name != *instead_of);
        if known.by_place.len() >= MOST_PLACES {
            known.by_place.clear();
        }
        known.by_place.insert(place, name);
    }

    fn note_kept(&self, name: Bytes, sticks: &[u8], kind: u32) {
        let size = sticks.len() as u64;
        if !(LEAST_COPIED..=MOST_COPIED).contains(&sticks.len()) {
            let digest = digest(sticks, kind);
            let mut known = self.known();
            known.hold(name, size, Some(digest));
            return known.shrink(self.limit);
        }
        let mut known = self.known();
        let mut copy = match known.same(sticks, kind) {
            Some(same) => {
                known.forget(&same.name);
                same.sticks
            }
            None => {
                let mut memory = known.room(sticks.len());
                memory.extend_from_slice(sticks);
                memory
            }
        };
        copy.shrink_to(sticks.len());
        known.hold(name.clone(), size, None);
        let sticks = copy;
        known.copies.push(Copied { name, kind, sticks });
        known.shrink(self.limit);
    }

    /// Forgets everything: the server said that something is missing.
    pub fn clear(&self) {
        *self.known() = Known::default();
    }
}
