// SPDX-License-Identifier: Apache-2.0
//! Memory of connections, sessions and messages, in mappings of its own. Nothing of it passes
//! through malloc: programs that read fresh memory see there what they would on the machine.

use dlmalloc::{GlobalDlmalloc, enable_alloc_after_fork};

#[global_allocator]
static HEAP: GlobalDlmalloc = GlobalDlmalloc;

/// Has forks wait until no thread holds the heap's lock: a child finds it free.
pub fn register_fork_handlers() {
    unsafe { enable_alloc_after_fork() };
}
