// SPDX-License-Identifier: Apache-2.0
//! Every shortcut of the library, and the plain function that it wraps. Without it a call has the
//! same result, slower; ZDNN_PLAIN switches shortcuts off by name.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::process::shortcuts::{Shortcut, Shortcuts};
use crate::rpc::channel::END_TIMEOUT;
use crate::rpc::connection::Connection;
use crate::rpc::frame::Frame;
use crate::rpc::plain_socket::{PlainSocketStreams, open_with_memory};
use crate::rpc::session_channel::SessionChannel;
use crate::rpc::stream::{Http2Streams, StreamChannel, StreamOpener};
use crate::transfer::StickTransfer;
use crate::transfer::cached::CachedTransfer;
use crate::transfer::content_cache::ContentCache;
use crate::transfer::plain::PlainTransfer;
use crate::transfer::shared::SharedTransfer;
use crate::transfer::shared_memory::SharedMemory;
use crate::wire;

/// Wraps a connection's unary calls: `stream`, whose streams `plain-socket` opens.
pub fn stream(
    shortcuts: &Shortcuts,
    connection: &Arc<Connection>,
    plain_socket: Option<PathBuf>,
    max_idle: Duration,
) -> Option<StreamChannel> {
    if !shortcuts.has(Shortcut::Stream) {
        return None;
    }
    let plain = Arc::clone(connection);
    let mut opener: Box<dyn StreamOpener> = Box::new(Http2Streams(Arc::clone(connection)));
    if let Some(path) = plain_socket.filter(|_| shortcuts.has(Shortcut::PlainSocket)) {
        let connection = Arc::clone(connection);
        opener = Box::new(PlainSocketStreams::new(path, connection, opener));
    }
    Some(StreamChannel::new(plain, opener, max_idle))
}

/// Returns the mirror of the server's content cache, if it has one: `content-cache`.
pub fn cache(shortcuts: &Shortcuts, limits: &wire::SessionLimits) -> Option<ContentCache> {
    let limit = limits.max_cache_bytes;
    let is_used = shortcuts.has(Shortcut::ContentCache) && limit != 0;
    is_used.then(|| ContentCache::new(limit))
}

/// Has the server map memory of this process, on its plain socket: `shared-memory`. The stream that
/// carries its descriptor then serves `plain-socket`.
pub fn memory(
    shortcuts: &Shortcuts,
    connection: &Arc<Connection>,
    socket: &Path,
    server: &SessionChannel,
    channel: Option<&StreamChannel>,
) -> Option<SharedMemory> {
    if !shortcuts.has(Shortcut::SharedMemory) || cfg!(target_endian = "big") {
        return None;
    }
    let memory = SharedMemory::create(server.limits.max_bytes)?;
    let request = wire::ExecuteRequest {
        session: server.name.clone(),
        operations: Vec::new(),
    };
    let first = Frame::of(&request).ok()?;
    let stream = open_with_memory(socket, connection, &first, memory.descriptor());
    let note = |failure| channel.inspect(|channel| channel.note_failure(&failure));
    let mut stream = stream.map_err(note).ok()?;
    match channel.filter(|_| shortcuts.has(Shortcut::PlainSocket)) {
        Some(channel) => channel.adopt(stream),
        None => {
            stream.finish();
            stream.wait_for_end(Instant::now() + END_TIMEOUT);
        }
    }
    Some(memory)
}

/// Wraps the plain transfer of a call: `shared-memory`, and around it `content-cache`.
pub fn transfer<'a>(
    server: &'a SessionChannel,
    memory: Option<&'a Arc<SharedMemory>>,
    cache: Option<&'a ContentCache>,
) -> Box<dyn StickTransfer + 'a> {
    let mut transfer: Box<dyn StickTransfer + 'a> = Box::new(PlainTransfer::new(server));
    if let Some(memory) = memory {
        transfer = Box::new(SharedTransfer::new(memory, transfer));
    }
    if let Some(cache) = cache {
        transfer = Box::new(CachedTransfer::new(cache, transfer));
    }
    transfer
}
