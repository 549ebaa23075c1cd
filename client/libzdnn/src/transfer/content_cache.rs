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
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use crate::transfer::shared_memory::Place;

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

/// Contents that are in the server's cache: when they were last used, bytes, their digest, if one
/// was taken, and where in shared memory the server has them, if there.
struct Held {
    used: u64,
    size: u64,
    digest: Option<Digest>,
    place: Option<Arc<Place>>,
}

/// An output as it came, and its name.
struct Copied {
    name: Bytes,
    kind: u32,
    sticks: Sticks,
}

enum Sticks {
    Own(Vec<u8>),
    There(Arc<Place>),
}

impl Sticks {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Own(sticks) => sticks,
            Self::There(place) => place.bytes(),
        }
    }

    /// Bytes that are there for the copy alone.
    fn size(&self) -> usize {
        match self {
            Self::Own(sticks) => sticks.len(),
            Self::There(_) => 0,
        }
    }
}

/// The name of contents, and what keeps their place while a call speaks of them.
pub struct Name {
    pub name: Bytes,
    _place: Option<Arc<Place>>,
}

impl Name {
    /// Returns the name of contents that are not in shared memory.
    pub fn of(name: Bytes) -> Self {
        Self { name, _place: None }
    }
}

/// An output that the server keeps.
pub struct Kept<'a> {
    pub name: Bytes,
    pub kind: u32,
    /// The address of the buffer that it is in.
    pub buffer: usize,
    /// What the server forgets for it; empty for nothing.
    pub instead_of: &'a Bytes,
    pub sticks: &'a [u8],
    /// Where in shared memory the server keeps it, if there.
    pub place: Option<Arc<Place>>,
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

    fn hold(&mut self, name: Bytes, size: u64, digest: Option<Digest>, place: Option<Arc<Place>>) {
        self.forget(&name);
        if let Some(digest) = digest {
            self.learn(&name, digest);
        }
        self.uses += 1;
        let used = self.uses;
        self.by_use.insert(used, name.clone());
        let held = Held {
            used,
            size,
            digest,
            place,
        };
        self.by_name.insert(name, held);
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
        if let Some(held) = self.forget(name) {
            self.hold(name.clone(), held.size, held.digest, held.place);
        }
    }

    fn found(&self, name: Bytes) -> Name {
        let _place = self.by_name.get(&name).and_then(|held| held.place.clone());
        Name { name, _place }
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
            (cfg!(target_endian = "little") || one.kind == kind) && one.sticks.bytes() == sticks
        };
        let at = self.copies.iter().position(is_same)?;
        Some(self.copies.remove(at))
    }

    /// Returns memory for a copy; the digest is taken of those that make room for it.
    fn room(&mut self, size: usize) -> Vec<u8> {
        let mut memory = Vec::new();
        let mut used: usize = self.copies.iter().map(|one| one.sticks.size()).sum();
        while self.copies.len() >= MOST_COPIES || used + size > MOST_COPIED {
            let Copied { name, kind, sticks } = self.copies.remove(0);
            used -= sticks.size();
            let digest = digest(sticks.bytes(), kind);
            self.learn(&name, digest);
            if let Some(held) = self.by_name.get_mut(&name) {
                held.digest = Some(digest);
            }
            if let Sticks::Own(sticks) = sticks {
                memory = sticks;
            }
        }
        memory.clear();
        memory
    }
}

impl Known {
    /// Returns a copy; in the place of another one that has the same bytes, whose name is forgotten.
    fn copy(&mut self, sticks: &[u8], kind: u32) -> Vec<u8> {
        let mut copy = match self.same(sticks, kind) {
            Some(same) => {
                self.forget(&same.name);
                match same.sticks {
                    Sticks::Own(same) => same,
                    Sticks::There(_) => sticks.to_vec(),
                }
            }
            None => {
                let mut memory = self.room(sticks.len());
                memory.extend_from_slice(sticks);
                memory
            }
        };
        copy.shrink_to(sticks.len());
        copy
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
    pub fn name(&self, sticks: &[u8], kind: u32) -> Result<Name, Digest> {
        if let Some(name) = self.name_of_copy(sticks, kind) {
            return Ok(name);
        }
        let digest = digest(sticks, kind);
        let mut known = self.known();
        let name = known.by_digest.get(&digest).cloned().ok_or(digest)?;
        known.touch(&name);
        Ok(known.found(name))
    }

    fn name_of_copy(&self, sticks: &[u8], kind: u32) -> Option<Name> {
        let mut known = self.known();
        let copy = known.same(sticks, kind)?;
        let name = copy.name.clone();
        known.copies.push(copy);
        known.touch(&name);
        Some(known.found(name))
    }

    /// Takes note of contents that were sent: their digest is their name.
    pub fn note_sent(&self, digest: Digest, size: u64) {
        let mut known = self.known();
        known.hold(Bytes::copy_from_slice(&digest), size, Some(digest), None);
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
    pub fn note_output(&self, kept: Kept<'_>) {
        let (buffer, instead_of, name) = (kept.buffer, kept.instead_of, kept.name.clone());
        self.note_kept(kept);
        let mut known = self.known();
        known.forget(instead_of);
        known.copies.retain(|one| one.name != *instead_of);
        if known.by_place.len() >= MOST_PLACES {
            known.by_place.clear();
        }
        known.by_place.insert(buffer, name);
    }

    fn note_kept(&self, kept: Kept<'_>) {
        let Kept {
            name, kind, sticks, ..
        } = kept;
        let size = sticks.len() as u64;
        let most = match kept.place {
            Some(_) => usize::MAX,
            None => MOST_COPIED,
        };
        if !(LEAST_COPIED..=most).contains(&sticks.len()) {
            let digest = digest(sticks, kind);
            let mut known = self.known();
            known.hold(name, size, Some(digest), kept.place);
            return known.shrink(self.limit);
        }
        let mut known = self.known();
        let copy = match &kept.place {
            Some(place) => {
                known.room(0);
                Sticks::There(Arc::clone(place))
            }
            None => Sticks::Own(known.copy(sticks, kind)),
        };
        known.hold(name.clone(), size, None, kept.place);
        let sticks = copy;
        known.copies.push(Copied { name, kind, sticks });
        known.shrink(self.limit);
    }

    /// Forgets everything: the server said that something is missing.
    pub fn clear(&self) {
        *self.known() = Known::default();
    }
}
