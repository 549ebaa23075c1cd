// SPDX-License-Identifier: Apache-2.0
//! gRPC calls over HTTP/2. Each message is copied once on its way in.
//! Source: gRPC over HTTP2, doc/PROTOCOL-HTTP2.md of the gRPC project.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue, TE};
use http::{Method, Request, StatusCode, Version};
use http_body_util::BodyExt;
use tonic::Status;
use tonic::body::Body;
use tonic::transport::Channel;
use tower_service::Service;

use crate::rpc::failure::status_in;
use crate::rpc::frame::PREFIX_BYTES;
use crate::rpc::pool::{KEPT_BYTES, Pool};

/// The header by which a proxy routes calls to a session's server.
/// Source: deploy/docs/wire.md, "Behind a proxy".
pub const TICKET: HeaderName = HeaderName::from_static("nnpa-session-ticket");

/// The credentials of a call, which its headers carry.
#[derive(Clone, Default)]
pub struct Credentials {
    pub token: Option<HeaderValue>,
    pub ticket: Option<HeaderValue>,
}

/// The messages that answer a call, as they arrive.
pub struct Answers {
    body: Body,
    http: StatusCode,
    /// The ticket that a proxy gives with them.
    pub ticket: Option<HeaderValue>,
}

/// Makes a call over a channel that is ready; returns when the server begins to answer.
pub async fn call(
    mut channel: Channel,
    path: &str,
    credentials: &Credentials,
    body: Body,
) -> Result<Answers, Status> {
    let mut request = Request::new(body);
    *request.method_mut() = Method::POST;
    *request.version_mut() = Version::HTTP_2;
    *request.uri_mut() = path.parse().expect("methods are plain words");
    let headers = request.headers_mut();
    headers.insert(TE, HeaderValue::from_static("trailers"));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    let Credentials { token, ticket } = credentials;
    for (name, value) in [(AUTHORIZATION, token), (TICKET, ticket)] {
        if let Some(value) = value {
            headers.insert(name, value.clone());
        }
    }
    let response = channel.call(request).await;
    let response = response.map_err(|error| Status::from_error(error.into()))?;
    if let Some(status) = status_in(response.headers()) {
        status?;
    }
    let (head, body) = response.into_parts();
    let (http, ticket) = (head.status, head.headers.get(TICKET).cloned());
    Ok(Answers { body, http, ticket })
}

impl Answers {
    /// Waits for the next message; None when the trailers say that the call succeeded.
    pub async fn next(&mut self, pool: &Pool) -> Result<Option<Bytes>, Status> {
        let mut partial = Partial::default();
        while let Some(frame) = self.body.frame().await {
            let frame = match frame?.into_data() {
                Ok(data) => match partial.add(data, pool)? {
                    None => continue,
                    whole => return Ok(whole),
                },
                Err(frame) => frame,
            };
            let trailers = frame.into_trailers().unwrap_or_default();
            match status_in(&trailers) {
                Some(Ok(())) if partial.received == 0 => return Ok(None),
                Some(Ok(())) => return Err(Status::internal("the answer ends early")),
                Some(Err(status)) => return Err(status),
                None => break,
            }
        }
        Err(Status::unknown(format!("HTTP status {}", self.http)))
    }

    /// Waits for the only message of the answer, and its end.
    pub async fn only(mut self, pool: &Pool) -> Result<Bytes, Status> {
        let Some(message) = self.next(pool).await? else {
            return Err(Status::internal("the answer has no message"));
        };
        match self.next(pool).await? {
            None => Ok(message),
            Some(_) => Err(Status::internal("the answer is not one plain message")),
        }
    }

    /// Returns, without waiting, whether neither data nor the end has arrived since the last
    /// message.
    pub async fn is_quiet(&mut self) -> bool {
        let mut next = self.body.frame();
        poll_fn(|context| Poll::Ready(Pin::new(&mut next).poll(context).is_pending())).await
    }
}

/// A message of which some frames have arrived.
#[derive(Default)]
struct Partial {
    prefix: [u8; PREFIX_BYTES],
    /// Bytes of the prefix that have arrived.
    received: usize,
    size: usize,
    memory: Vec<u8>,
}

impl Partial {
    /// Adds what arrived; returns the message once it is whole. A message in one frame is not
    /// copied.
    fn add(&mut self, mut data: Bytes, pool: &Pool) -> Result<Option<Bytes>, Status> {
        if self.received < PREFIX_BYTES {
            let part = data.split_to(data.len().min(PREFIX_BYTES - self.received));
            self.prefix[self.received..][..part.len()].copy_from_slice(&part);
            self.received += part.len();
            if self.received < PREFIX_BYTES {
                return Ok(None);
            }
            let [_, size @ ..] = self.prefix;
            self.size = u32::from_be_bytes(size) as usize;
            if self.prefix[0] == 0 && data.len() == self.size {
                return Ok(Some(data));
            }
            self.memory = pool.take(self.size.min(KEPT_BYTES));
        }
        if self.prefix[0] != 0 || self.memory.len() + data.len() > self.size {
            return Err(Status::internal("the answer is not one plain message"));
        }
        self.memory.extend_from_slice(&data);
        let whole = self.memory.len() == self.size;
        Ok(whole.then(|| pool.lend(std::mem::take(&mut self.memory))))
    }
}
