// SPDX-License-Identifier: Apache-2.0
//! The library's part of the sanitizer, ZDNN_SANITIZE=1: the server detects and reports misuse; the
//! library tells it the history of the buffers that it allocated, concurrent calls on the same
//! memory, and the program's call sites.
//! Source: nnpa/zdnn/v1/sanitizer.proto.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::c_void;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::abi::PAGE;
use crate::abi::memory::text;
use crate::wire::{Provenance, SanitizerSite as Site};

/// NINF, in every half word of a fresh buffer.
const PATTERN: u16 = 0x7FFF;
/// Bytes of freed buffers that are kept, so that a use of one is recognized.
const MAX_FREED: usize = 64 << 20;
const FRAMES: usize = 64;
const LIBRARY: &[u8] = b"libzdnn.so";

static ENABLED: AtomicBool = AtomicBool::new(false);
static CALLS: AtomicU64 = AtomicU64::new(0);
static MEMORY: Mutex<Memory> = Mutex::new(Memory {
    blocks: BTreeMap::new(),
    freed: VecDeque::new(),
    freed_bytes: 0,
    uses: Vec::new(),
});

/// A buffer that the library allocated.
struct Block {
    size: usize,
    raw: usize,
    allocation: Site,
    free: Option<Site>,
    /// Whether an operation has written to each page: views of a buffer are on its boundaries.
    written: Vec<bool>,
}

impl Block {
    /// Returns the pages that some bytes of the buffer lie in.
    fn pages(&self, offset: usize, size: usize) -> Range<usize> {
        let end = offset.saturating_add(size).min(self.size);
        offset / PAGE..end.div_ceil(PAGE)
    }

    /// Returns whether neither an operation nor the program has written to some page of these
    /// bytes since the buffer was allocated.
    ///
    /// # Safety
    /// The buffer begins at `first`, and can be read.
    unsafe fn has_fresh_page(&self, first: usize, offset: usize, size: usize) -> bool {
        let end = offset.saturating_add(size).min(self.size);
        self.pages(offset, size).any(|page| {
            let (from, to) = (offset.max(page * PAGE), end.min((page + 1) * PAGE));
            !self.written[page] && unsafe { is_pattern(first + from, to - from) }
        })
    }
}

/// Memory that a call under way reads or writes.
struct Use {
    call: u64,
    thread: libc::pthread_t,
    first: usize,
    size: usize,
    writes: bool,
}

struct Memory {
    blocks: BTreeMap<usize, Block>,
    freed: VecDeque<usize>,
    freed_bytes: usize,
    uses: Vec<(Use, Site)>,
}

impl Memory {
    /// Finds the buffer in which an address lies, and where it begins.
    fn block(&mut self, address: usize) -> Option<(usize, &mut Block)> {
        let (first, block) = self.blocks.range_mut(..=address).next_back()?;
        (address - first < block.size).then_some((*first, block))
    }

    /// Releases the buffers that the program freed first, as far as the limit demands.
    fn shrink(&mut self) {
        while self.freed_bytes > MAX_FREED {
            let Some(first) = self.freed.pop_front() else {
                return;
            };
            if let Some(block) = self.blocks.remove(&first) {
                self.freed_bytes -= block.size;
                unsafe { libc::free(block.raw as *mut c_void) };
            }
        }
    }
}

fn memory() -> MutexGuard<'static, Memory> {
    MEMORY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns whether the process's session sanitizes.
pub fn enabled() -> bool {
    ENABLED.load(Ordering::Relaxed)
}

/// Records whether a session sanitizes.
pub fn enable(on: bool) {
    ENABLED.store(on, Ordering::Relaxed);
}

fn object(address: *const c_void) -> Option<libc::Dl_info> {
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    let has_object = unsafe { libc::dladdr(address, &raw mut info) } != 0;
    (has_object && !info.dli_fname.is_null()).then_some(info)
}

fn symbol(info: &libc::Dl_info) -> String {
    unsafe { text(info.dli_sname) }.unwrap_or_default()
}

fn file_name(info: &libc::Dl_info) -> String {
    let path = unsafe { text(info.dli_fname) }.unwrap_or_default();
    path.rsplit('/').next().unwrap_or_default().to_owned()
}

/// Returns the function that the program called, and the call site: object and offset, which
/// addr2line resolves. A statically linked library cannot tell its frames from the program's, and
/// gives the number of the call.
pub fn site(name: &str) -> Site {
    let number = CALLS.fetch_add(1, Ordering::Relaxed) + 1;
    let mut site = Site {
        operation: name.to_owned(),
        at: format!("call {number}"),
    };
    let own = object(site_address());
    let Some(own) = own.filter(|info| file_name(info).as_bytes().starts_with(LIBRARY)) else {
        return site;
    };
    let mut frames = [std::ptr::null_mut::<c_void>(); FRAMES];
    let count = unsafe { libc::backtrace(frames.as_mut_ptr(), FRAMES as i32) };
    for frame in frames.iter().take(usize::try_from(count).unwrap_or(0)) {
        let call = frame.cast::<u8>().wrapping_sub(1);
        let Some(info) = object(call.cast()) else {
            continue;
        };
        if info.dli_fbase == own.dli_fbase {
            let inner = symbol(&info);
            site.operation = inner.trim_start_matches("zdnn_").to_owned();
            continue;
        }
        let offset = call as usize - info.dli_fbase as usize;
        let outer = symbol(&info);
        let within = if outer.is_empty() { "" } else { " in " };
        site.at = format!("{}+0x{offset:x}{within}{outer}", file_name(&info));
        break;
    }
    if !name.is_empty() {
        site.operation = name.to_owned();
    }
    site
}

fn site_address() -> *const c_void {
    site as fn(&str) -> Site as *const c_void
}

/// Fills a fresh buffer, and remembers it.
pub unsafe fn allocated(sticks: *mut c_void, bytes: u64, name: &str) {
    let size = usize::try_from(bytes).unwrap_or(0);
    unsafe { fill(sticks, size) };
    let raw = unsafe { sticks.cast::<*mut c_void>().sub(1).read() } as usize;
    let block = Block {
        size,
        raw,
        allocation: site(name.trim_start_matches("zdnn_")),
        free: None,
        written: vec![false; size.div_ceil(PAGE)],
    };
    memory().blocks.insert(sticks as usize, block);
}

unsafe fn fill(sticks: *mut c_void, size: usize) {
    unsafe { std::slice::from_raw_parts_mut(sticks.cast::<u16>(), size / 2) }.fill(PATTERN);
}

/// The outcome of a free by the program.
pub enum Freed {
    /// The library did not allocate it.
    Unknown,
    /// It is kept for a while.
    Kept,
    /// It was freed before.
    Twice(Provenance),
}

/// Keeps a buffer that the program frees, so that its address is not reused.
///
/// # Safety
/// The program has freed the buffer.
pub unsafe fn freed(sticks: *mut c_void) -> Freed {
    let here = site("free_ztensor_buffer");
    let mut memory = memory();
    let Some(block) = memory.blocks.get_mut(&(sticks as usize)) else {
        return Freed::Unknown;
    };
    if block.free.is_some() {
        return Freed::Twice(Provenance {
            allocation: Some(block.allocation.clone()),
            free: block.free.clone(),
            ..Provenance::default()
        });
    }
    block.free = Some(here);
    let size = block.size;
    unsafe { fill(sticks, size) };
    memory.freed.push_back(sticks as usize);
    memory.freed_bytes += size;
    memory.shrink();
    Freed::Kept
}

/// Notes that an operation has written bytes of a buffer.
pub fn written(sticks: *mut c_void, bytes: u64) {
    let address = sticks as usize;
    let size = usize::try_from(bytes).unwrap_or(usize::MAX);
    if let Some((first, block)) = memory().block(address) {
        let pages = block.pages(address - first, size);
        block.written[pages].fill(true);
    }
}

/// A call in progress, with its call site; dropping it ends the call.
pub struct Watch {
    call: u64,
    pub site: Site,
}

impl Watch {
    /// Begins to watch a call, in a process that sanitizes.
    pub fn begin() -> Option<Self> {
        if !enabled() {
            return None;
        }
        let site = site("");
        let call = CALLS.load(Ordering::Relaxed);
        Some(Self { call, site })
    }

    /// Returns the program's call site of a call; empty in a process that does not sanitize.
    pub fn site_of(watch: Option<&Self>) -> String {
        watch.map_or_else(String::new, |watch| watch.site.at.clone())
    }

    /// Returns the provenance of an operand's memory, and notes that the call uses it.
    ///
    /// # Safety
    /// Memory that the library allocated and still keeps can be read.
    pub unsafe fn operand(&self, sticks: *mut c_void, bytes: u64, writes: bool) -> Provenance {
        let size = usize::try_from(bytes).unwrap_or(usize::MAX);
        let first = sticks as usize;
        let thread = unsafe { libc::pthread_self() };
        let mut memory = memory();
        let conflicts = |using: &Use| {
            using.thread != thread
                && (using.writes || writes)
                && using.first < first.saturating_add(size)
                && first < using.first.saturating_add(using.size)
        };
        let conflict = memory.uses.iter().find(|(using, _)| conflicts(using));
        let mut provenance = Provenance {
            concurrent: conflict.map(|(_, site)| site.clone()),
            ..Provenance::default()
        };
        if let Some((begin, block)) = memory.block(first) {
            provenance.allocation = Some(block.allocation.clone());
            provenance.free.clone_from(&block.free);
            provenance.never_written = !writes
                && block.free.is_none()
                && unsafe { block.has_fresh_page(begin, first - begin, size) };
        }
        let call = self.call;
        let using = Use {
            call,
            thread,
            first,
            size,
            writes,
        };
        memory.uses.push((using, self.site.clone()));
        provenance
    }
}

unsafe fn is_pattern(address: usize, size: usize) -> bool {
    let cells = unsafe { std::slice::from_raw_parts(address as *const u8, size) };
    let pattern = PATTERN.to_ne_bytes();
    cells.chunks_exact(2).all(|cell| cell == pattern)
}

impl Drop for Watch {
    fn drop(&mut self) {
        memory().uses.retain(|(using, _)| using.call != self.call);
    }
}
