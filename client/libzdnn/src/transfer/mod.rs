// SPDX-License-Identifier: Apache-2.0
//! How sticks and arrays get to the server, and back.

pub mod chunks;
pub mod content_cache;
pub mod shared_memory;
