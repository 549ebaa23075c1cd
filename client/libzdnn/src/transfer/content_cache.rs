// SPDX-License-Identifier: Apache-2.0
//! A mirror of the session's content cache: names of sticks by their digest.
//!
//! A digest is taken of the bytes in memory at every call, whoever wrote them, wherever they lie.
//! It has the size and the order of use of the server's cache: both evict the same contents at
//! about the same time, and CACHE_MISS stays rare.
//!
//! The last large outputs are copied. Comparing bytes with a copy takes a tenth to half of the time
//! of a digest, and most outputs are either the next input or never an input.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use crate::transfer::shared_memory::Region;

/// BLAKE3 of sticks: 256 bits, so that two contents never have the same.
pub type Digest = [u8; blake3::OUT_LEN];

/// Smaller sticks take about as long to compare as to digest.
const MIN_COPIED: usize = 64 << 10;
/// Bytes of all copies, at most.
const MAX_COPIED: usize = 16 << 20;
const MAX_COPIES: usize = 4;
/// Buffers whose last output has an entry.
const MAX_BUFFERS: usize = 4096;

/// Returns the digest of sticks of a transformed type. On little-endian hosts equal bytes mean the
/// same for all types; big-endian sticks are swapped by type on arrival.
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

/// Contents in the server's cache.
struct Entry {
    last_use: u64,
    size: u64,
    /// None if it was not computed.
    digest: Option<Digest>,
    /// Their region of shared memory, if the server has them there.
    region: Option<Arc<Region>>,
}

/// A copy of an output, and its name.
struct Copied {
    name: Bytes,
    kind: u32,
    sticks: Sticks,
}

enum Sticks {
    Own(Vec<u8>),
    Shared(Arc<Region>),
}

impl Sticks {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Own(sticks) => sticks,
            Self::Shared(region) => region.bytes(),
        }
    }

    /// Bytes that the copy alone takes.
    fn size(&self) -> usize {
        match self {
            Self::Own(sticks) => sticks.len(),
            Self::Shared(_) => 0,
        }
    }
}

/// The name of contents, which keeps their region while a call names them.
pub struct Name {
    pub name: Bytes,
    _region: Option<Arc<Region>>,
}

impl Name {
    /// Returns the name of contents that are not in shared memory.
    pub fn of(name: Bytes) -> Self {
        Self {
            name,
            _region: None,
        }
    }
}

/// An output that the server keeps.
pub struct Output<'a> {
    pub name: Bytes,
    pub kind: u32,
    /// The address of its buffer.
    pub buffer: usize,
    /// The name of the output that the server evicts for it; empty for none.
    pub replaces: &'a Bytes,
    pub sticks: &'a [u8],
    /// Its region of shared memory, if the server keeps it there.
    pub region: Option<Arc<Region>>,
}

/// The entries, by name, digest, order of use, and buffer.
#[derive(Default)]
struct Entries {
    by_name: HashMap<Bytes, Entry>,
    by_digest: HashMap<Digest, Bytes>,
    by_use: BTreeMap<u64, Bytes>,
    uses: u64,
    size: u64,
    /// Copies of contents that have entries; the last used is the last.
    copies: Vec<Copied>,
    /// The last output by the address of its buffer.
    by_buffer: HashMap<usize, Bytes>,
}

impl Entries {
    fn remove(&mut self, name: &Bytes) -> Option<Entry> {
        let entry = self.by_name.remove(name)?;
        self.by_use.remove(&entry.last_use);
        self.size -= entry.size;
        if let Some(digest) = &entry.digest {
            self.by_digest.remove(digest);
        }
        Some(entry)
    }

    fn insert(
        &mut self,
        name: Bytes,
        size: u64,
        digest: Option<Digest>,
        region: Option<Arc<Region>>,
    ) {
        self.remove(&name);
        if let Some(digest) = digest {
            self.set_digest(&name, digest);
        }
        self.uses += 1;
        let last_use = self.uses;
        self.by_use.insert(last_use, name.clone());
        let entry = Entry {
            last_use,
            size,
            digest,
            region,
        };
        self.by_name.insert(name, entry);
        self.size += size;
    }

    /// Gives a digest to a name; another name that had it is removed.
    fn set_digest(&mut self, name: &Bytes, digest: Digest) {
        if let Some(previous) = self.by_digest.get(&digest).cloned() {
            self.remove(&previous);
        }
        self.by_digest.insert(digest, name.clone());
    }

    fn touch(&mut self, name: &Bytes) {
        if let Some(entry) = self.remove(name) {
            self.insert(name.clone(), entry.size, entry.digest, entry.region);
        }
    }

    fn in_use(&self, name: Bytes) -> Name {
        let entry = self.by_name.get(&name);
        let _region = entry.and_then(|entry| entry.region.clone());
        Name { name, _region }
    }

    fn shrink(&mut self, limit: u64) {
        while self.size > limit {
            let Some((_, oldest)) = self.by_use.pop_first() else {
                return;
            };
            self.remove(&oldest);
            self.copies.retain(|copy| copy.name != oldest);
        }
    }

    /// Removes the copy that has these bytes.
    fn same(&mut self, sticks: &[u8], kind: u32) -> Option<Copied> {
        let is_same = |copy: &Copied| {
            (cfg!(target_endian = "little") || copy.kind == kind) && copy.sticks.bytes() == sticks
        };
        let at = self.copies.iter().position(is_same)?;
        Some(self.copies.remove(at))
    }

    /// Returns memory for a copy; copies that make room for it get their digest.
    fn room(&mut self, size: usize) -> Vec<u8> {
        let mut memory = Vec::new();
        let mut used: usize = self.copies.iter().map(|copy| copy.sticks.size()).sum();
        while self.copies.len() >= MAX_COPIES || used + size > MAX_COPIED {
            let Copied { name, kind, sticks } = self.copies.remove(0);
            used -= sticks.size();
            let digest = digest(sticks.bytes(), kind);
            self.set_digest(&name, digest);
            if let Some(entry) = self.by_name.get_mut(&name) {
                entry.digest = Some(digest);
            }
            if let Sticks::Own(sticks) = sticks {
                memory = sticks;
            }
        }
        memory.clear();
        memory
    }

    /// Returns a copy; it replaces a copy that has the same bytes, whose name is removed.
    fn copy(&mut self, sticks: &[u8], kind: u32) -> Vec<u8> {
        let mut copy = match self.same(sticks, kind) {
            Some(same) => {
                self.remove(&same.name);
                match same.sticks {
                    Sticks::Own(same) => same,
                    Sticks::Shared(_) => sticks.to_vec(),
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
pub struct ContentCache {
    limit: u64,
    entries: Mutex<Entries>,
}

impl ContentCache {
    /// Starts empty, for a cache of `limit` bytes.
    pub fn new(limit: u64) -> Self {
        Self {
            limit,
            entries: Mutex::default(),
        }
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether sticks of this size fit the cache.
    pub fn fits(&self, size: u64) -> bool {
        size <= self.limit
    }

    /// Returns the name of contents that the server has, else their digest.
    pub fn name(&self, sticks: &[u8], kind: u32) -> Result<Name, Digest> {
        if let Some(name) = self.name_of_copy(sticks, kind) {
            return Ok(name);
        }
        let digest = digest(sticks, kind);
        let mut entries = self.entries();
        let name = entries.by_digest.get(&digest).cloned().ok_or(digest)?;
        entries.touch(&name);
        Ok(entries.in_use(name))
    }

    fn name_of_copy(&self, sticks: &[u8], kind: u32) -> Option<Name> {
        let mut entries = self.entries();
        let copy = entries.same(sticks, kind)?;
        let name = copy.name.clone();
        entries.copies.push(copy);
        entries.touch(&name);
        Some(entries.in_use(name))
    }

    /// Notes contents that were sent: their digest is their name.
    pub fn note_sent(&self, digest: Digest, size: u64) {
        let mut entries = self.entries();
        entries.insert(Bytes::copy_from_slice(&digest), size, Some(digest), None);
        entries.shrink(self.limit);
    }

    /// Returns the name of the output that was last written to a buffer, if it has an entry: the
    /// next output replaces it. Without it, outputs that no program can see any more would fill the
    /// server's cache.
    pub fn written_to(&self, buffer: usize) -> Bytes {
        let entries = self.entries();
        let name = entries.by_buffer.get(&buffer);
        let current = name.filter(|name| entries.by_name.contains_key(*name));
        current.cloned().unwrap_or_default()
    }

    /// Notes an output that the server keeps, and the output that the server evicts for it.
    pub fn note_output(&self, output: Output<'_>) {
        let (buffer, replaces, name) = (output.buffer, output.replaces, output.name.clone());
        self.note_kept(output);
        let mut entries = self.entries();
        entries.remove(replaces);
        entries.copies.retain(|copy| copy.name != *replaces);
        if entries.by_buffer.len() >= MAX_BUFFERS {
            entries.by_buffer.clear();
        }
        entries.by_buffer.insert(buffer, name);
    }

    fn note_kept(&self, output: Output<'_>) {
        let Output {
            name,
            kind,
            sticks,
            region,
            ..
        } = output;
        let size = sticks.len() as u64;
        let limit = match region {
            Some(_) => usize::MAX,
            None => MAX_COPIED,
        };
        if !(MIN_COPIED..=limit).contains(&sticks.len()) {
            let digest = digest(sticks, kind);
            let mut entries = self.entries();
            entries.insert(name, size, Some(digest), region);
            return entries.shrink(self.limit);
        }
        let mut entries = self.entries();
        let copy = match &region {
            Some(region) => {
                entries.room(0);
                Sticks::Shared(Arc::clone(region))
            }
            None => Sticks::Own(entries.copy(sticks, kind)),
        };
        entries.insert(name.clone(), size, None, region);
        let sticks = copy;
        entries.copies.push(Copied { name, kind, sticks });
        entries.shrink(self.limit);
    }

    /// Empties the mirror: the server has evicted its contents.
    pub fn clear(&self) {
        *self.entries() = Entries::default();
    }
}
