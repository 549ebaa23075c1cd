// SPDX-License-Identifier: Apache-2.0
//! Memory of connections, sessions and messages, in mappings of its own. None of it comes from
//! malloc: a program that reads fresh memory sees the same bytes as on the machine.

use dlmalloc::{GlobalDlmalloc, enable_alloc_after_fork};

#[global_allocator]
static HEAP: GlobalDlmalloc = GlobalDlmalloc;

/// Makes forks wait until no thread holds the heap's lock, so that a child finds it free.
pub fn register_fork_handlers() {
    unsafe { enable_alloc_after_fork() };
}
