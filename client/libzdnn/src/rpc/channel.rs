// SPDX-License-Identifier: Apache-2.0
//! The channel: calls of one request and one answer, which the shortcut `stream` wraps.

use std::time::{Duration, Instant};

use bytes::Bytes;
use prost::Message;

use crate::rpc::failure::Failure;
use crate::rpc::frame::Frame;

/// How long the end of a session or stream waits for the server.
pub const END_TIMEOUT: Duration = Duration::from_millis(500);

/// Calls to one server. Methods are of AcceleratorService, or paths.
pub trait Channel: Send + Sync {
    /// Sends one request and returns its answer.
    fn unary(&self, method: &str, request: &Frame) -> Result<Bytes, Failure>;

    /// Makes a last call and closes open streams, until the deadline.
    fn close(&self, method: &str, request: &Frame, deadline: Instant);
}

/// Decodes an answer.
pub fn decoded<R: Message + Default>(answer: Bytes) -> Result<R, Failure> {
    R::decode(answer).map_err(|error| Failure::Lost(error.to_string()))
}

/// Makes a unary call of typed messages.
pub fn unary<R: Message + Default>(
    channel: &dyn Channel,
    method: &str,
    request: &impl Message,
) -> Result<R, Failure> {
    decoded(channel.unary(method, &Frame::of(request)?)?)
}
