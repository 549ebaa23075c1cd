// SPDX-License-Identifier: Apache-2.0
//! Every shortcut of the library, and the plain function that it wraps. Without it the same call
//! has the same result, slower; ZDNN_PLAIN takes them away by name.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::process::shortcuts::{Shortcut, Shortcuts};
use crate::rpc::connection::Connection;
use crate::rpc::plain_socket::PlainSocketStreams;
use crate::rpc::session_channel::SessionChannel;
use crate::rpc::stream::{Http2Streams, StreamChannel, StreamOpener};
use crate::transfer::StickTransfer;
use crate::transfer::cached::CachedTransfer;
use crate::transfer::content_cache::ContentCache;
use crate::transfer::plain::PlainTransfer;
use crate::transfer::shared::SharedTransfer;
use crate::transfer::shared_memory::SharedMemory;

/// Wraps a connection's unary calls: `stream`, whose streams `plain-socket` opens.
pub fn stream(
    shortcuts: &Shortcuts,
    connection: &Arc<Connection>,
    plain_socket: Option<PathBuf>,
    max_idle: Duration,
) -> Option<Arc<StreamChannel>> {
    if !shortcuts.has(Shortcut::Stream) {
        return None;
    }
    let plain = Arc::clone(connection);
    let mut opener: Box<dyn StreamOpener> = Box::new(Http2Streams(Arc::clone(connection)));
    if let Some(path) = plain_socket.filter(|_| shortcuts.has(Shortcut::PlainSocket)) {
        let connection = Arc::clone(connection);
        opener = Box::new(PlainSocketStreams::new(path, connection, opener));
    }
    Some(Arc::new(StreamChannel::new(plain, opener, max_idle)))
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
