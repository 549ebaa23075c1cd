// SPDX-License-Identifier: Apache-2.0
//! The shortcut `stream`: operations of a session over one ExecuteStream, for which the server
//! keeps a thread. Each is sent when the operation before has its answer. The first operation opens
//! the stream; an operation that finds it ended opens another. A concurrent operation, and every
//! operation of a session that gets no stream, goes over the wrapped channel.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::channel::{Channel as BodyChannel, Sender};
use tonic::body::Body;

use crate::rpc::channel::Channel;
use crate::rpc::connection::Connection;
use crate::rpc::failure::Failure;
use crate::rpc::frame::Frame;
use crate::rpc::http2::Answers;

/// The method whose calls go over the stream.
const OPERATIONS: &str = "Execute";
/// Field of CALL_QUOTA_EXCEEDED if the server has no stream to spare: single calls need none.
const STREAM_LIMIT: &str = "max_conversations";

/// A stream on which each request has one answer.
pub trait RequestStream: Send {
    /// Sends a request and returns true if the stream is still open; else nothing has run.
    fn send(&mut self, request: &Frame) -> bool;

    /// Waits for the answer to the last request.
    fn receive(&mut self) -> Result<Bytes, Failure>;

    /// Ends the requests.
    fn finish(&mut self);

    /// Waits until the server has ended its answers, until the deadline.
    fn wait_for_end(&mut self, deadline: Instant);
}

/// Opens a stream with its first request.
pub trait StreamOpener: Send + Sync {
    fn open(&self, first: &Frame) -> Result<Box<dyn RequestStream>, Failure>;
}

/// Returns the failure of a call whose stream ended with status OK before the answer.
pub fn ended() -> Failure {
    Failure::Lost("the server has ended the conversation".to_owned())
}

/// Opens streams over HTTP/2.
pub struct Http2Streams(pub Arc<Connection>);

struct Http2Stream {
    connection: Arc<Connection>,
    requests: Option<Sender<Bytes, Infallible>>,
    answers: Answers,
}

impl StreamOpener for Http2Streams {
    fn open(&self, first: &Frame) -> Result<Box<dyn RequestStream>, Failure> {
        let connection = Arc::clone(&self.0);
        let frame = first.joined(connection.pool());
        let (mut requests, body) = BodyChannel::new(1);
        let answers = connection.drive(async {
            drop(requests.send_data(frame).await);
            connection.call("ExecuteStream", Body::new(body)).await
        })?;
        Ok(Box::new(Http2Stream {
            connection,
            requests: Some(requests),
            answers,
        }))
    }
}

impl RequestStream for Http2Stream {
    fn send(&mut self, request: &Frame) -> bool {
        let frame = request.joined(self.connection.pool());
        let (answers, requests) = (&mut self.answers, &mut self.requests);
        self.connection.drive(async {
            self.connection.process_events().await;
            let Some(requests) = requests else {
                return false;
            };
            answers.is_quiet().await && requests.send_data(frame).await.is_ok()
        })
    }

    fn receive(&mut self) -> Result<Bytes, Failure> {
        let answer = self.answers.next(self.connection.pool());
        self.connection.drive(answer)?.ok_or_else(ended)
    }

    fn finish(&mut self) {
        self.requests = None;
    }

    fn wait_for_end(&mut self, deadline: Instant) {
        let end = self.answers.next(self.connection.pool());
        self.connection.drive(async {
            drop(tokio::time::timeout_at(deadline.into(), end).await);
        });
    }
}

/// Returns whether the server has no stream to spare; then nothing has run.
fn is_about_streams(failure: &Failure) -> bool {
    matches!(failure, Failure::Refused { reason, field, .. }
        if reason == "CALL_QUOTA_EXCEEDED" && field == STREAM_LIMIT)
}

/// The stream of a session, and its opener.
struct Conversation {
    stream: Option<Box<dyn RequestStream>>,
    opener: Box<dyn StreamOpener>,
    /// Whether the server has refused a stream; it is not asked twice.
    refused: bool,
    last_answer: Option<Instant>,
    /// A stream that has idled for longer may be one that the server is ending.
    max_idle: Duration,
}

impl Conversation {
    fn open(&mut self, first: &Frame) -> Result<Bytes, Failure> {
        let stream = self.opener.open(first)?;
        self.stream.insert(stream).receive()
    }

    fn leave_if_idle(&mut self) {
        let is_idle = |last: Instant| last.elapsed() > self.max_idle;
        if self.last_answer.is_some_and(is_idle)
            && let Some(mut stream) = self.stream.take()
        {
            stream.finish();
        }
    }

    /// Makes a call over the stream; None if it must go over the wrapped channel.
    fn call(&mut self, request: &Frame) -> Result<Option<Bytes>, Failure> {
        self.leave_if_idle();
        let open = self.stream.as_mut();
        let sent = open.is_some_and(|stream| stream.send(request));
        let answer = match &mut self.stream {
            Some(stream) if sent => stream.receive(),
            _ => self.open(request),
        };
        if answer.is_err() {
            self.stream = None;
        }
        self.last_answer = Some(Instant::now());
        match answer {
            // The server takes no more calls here: perhaps it does over another connection.
            Err(Failure::Unreachable(_)) if sent => Ok(None),
            Err(failure) if is_about_streams(&failure) => {
                self.refused = true;
                Ok(None)
            }
            answer => answer.map(Some),
        }
    }
}

/// A channel whose operations share a stream. The thread that has the lock has the stream.
pub struct StreamChannel {
    inner: Arc<dyn Channel>,
    conversation: Mutex<Conversation>,
}

impl StreamChannel {
    /// Wraps a channel. A stream that has idled for more than `max_idle` is not used again.
    pub fn new(inner: Arc<dyn Channel>, opener: Box<dyn StreamOpener>, max_idle: Duration) -> Self {
        Self {
            inner,
            conversation: Mutex::new(Conversation {
                stream: None,
                opener,
                refused: false,
                last_answer: None,
                max_idle,
            }),
        }
    }

    /// Takes over an open stream whose requests have their answers.
    pub fn adopt(&self, stream: Box<dyn RequestStream>) {
        if let Some(mut conversation) = self.conversation() {
            conversation.stream = Some(stream);
            conversation.last_answer = Some(Instant::now());
        }
    }

    /// Asks for no stream if a failure says that the server has none to spare.
    pub fn note_failure(&self, failure: &Failure) {
        if let Some(mut conversation) = self.conversation() {
            conversation.refused = is_about_streams(failure);
        }
    }

    /// Returns the conversation unless another thread has it.
    fn conversation(&self) -> Option<MutexGuard<'_, Conversation>> {
        match self.conversation.try_lock() {
            Ok(conversation) => Some(conversation),
            Err(TryLockError::Poisoned(poisoned)) => Some(PoisonError::into_inner(poisoned)),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

impl Channel for StreamChannel {
    fn unary(&self, method: &str, request: &Frame) -> Result<Bytes, Failure> {
        let conversation = (method == OPERATIONS).then(|| self.conversation());
        let answer = match conversation.flatten() {
            Some(mut conversation) if !conversation.refused => conversation.call(request)?,
            _ => None,
        };
        match answer {
            Some(answer) => Ok(answer),
            None => self.inner.unary(method, request),
        }
    }

    fn close(&self, method: &str, request: &Frame, deadline: Instant) {
        let stream = self.conversation().and_then(|mut open| open.stream.take());
        let Some(mut stream) = stream else {
            return self.inner.close(method, request, deadline);
        };
        stream.finish();
        self.inner.close(method, request, deadline);
        stream.wait_for_end(deadline);
    }
}
