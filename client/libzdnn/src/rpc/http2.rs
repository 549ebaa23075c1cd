// SPDX-License-Identifier: Apache-2.0
//! gRPC calls over HTTP/2 whose messages are copied once on their way out and once on their way in,
//! into memory that calls share: fresh megabytes cost the kernel more than the copy.
//! Source: gRPC over HTTP2, doc/PROTOCOL-HTTP2.md of the gRPC project.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use bytes::{BufMut, Bytes};
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, TE};
use http::{Method, Request, StatusCode, Version};
use http_body_util::BodyExt;
use prost::Message;
use tonic::body::Body;
use tonic::transport::Channel;
use tonic::{Code, Status};
use tower_service::Service;

/// A message's prefix: one byte that says whether it is compressed, four with its length.
pub const PREFIX_BYTES: usize = 5;
/// Memory beyond this is given back after the call, bytes: twice the largest inline tensor.
pub const KEPT_BYTES: usize = 32 << 20;
const MOST_KEPT: usize = 4;

/// Returns what goes before a message of so many bytes.
pub fn prefix(size: usize) -> Result<[u8; PREFIX_BYTES], Status> {
    let told = u32::try_from(size);
    let told = told.map_err(|_| Status::resource_exhausted("a message has 4 GiB or more"))?;
    let [a, b, c, d] = told.to_be_bytes();
    Ok([0, a, b, c, d])
}

/// Memory of calls that have ended, for those that come.
#[derive(Clone, Default)]
pub struct Pool(Arc<Mutex<Vec<Vec<u8>>>>);

/// Memory that goes back to its pool once nobody looks at it any more.
struct Lent {
    memory: Vec<u8>,
    pool: Pool,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.memory
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let mut free = self.pool.0.lock().unwrap_or_else(PoisonError::into_inner);
        if self.memory.capacity() <= KEPT_BYTES && free.len() < MOST_KEPT {
            free.push(std::mem::take(&mut self.memory));
        }
    }
}

impl Pool {
    /// Returns empty memory for so many bytes.
    pub fn take(&self, size: usize) -> Vec<u8> {
        let mut free = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = free.iter().position(|one| one.capacity() >= size);
        let at = fits.or_else(|| free.len().checked_sub(1));
        let mut memory = at.map(|at| free.swap_remove(at)).unwrap_or_default();
        memory.clear();
        memory.reserve(size);
        memory
    }

    /// Returns a view of memory, which comes back to the pool when nobody looks at it any more.
    pub fn lend(&self, memory: Vec<u8>) -> Bytes {
        let pool = self.clone();
        Bytes::from_owner(Lent { memory, pool })
    }

    /// Returns a message as it travels, with its prefix.
    pub fn framed(&self, message: &impl Message) -> Result<Bytes, Status> {
        let size = message.encoded_len();
        let mut memory = self.take(PREFIX_BYTES + size);
        memory.put_slice(&prefix(size)?);
        let encoded = message.encode(&mut memory);
        encoded.map_err(|error| Status::internal(error.to_string()))?;
        Ok(self.lend(memory))
    }
}

/// Returns the status of a call that metadata tell, if they do.
pub fn told(headers: &HeaderMap) -> Option<Result<(), Status>> {
    let status = Status::from_header_map(headers)?;
    Some(match status.code() {
        Code::Ok => Ok(()),
        _ => Err(status),
    })
}

/// The messages that answer a call, as they arrive.
pub struct Answers {
    body: Body,
    http: StatusCode,
}

/// Makes a call over a channel that is ready; returns when the server begins to answer.
pub async fn call(
    mut channel: Channel,
    path: &str,
    token: Option<&HeaderValue>,
    body: Body,
) -> Result<Answers, Status> {
    let mut request = Request::new(body);
    *request.method_mut() = Method::POST;
    *request.version_mut() = Version::HTTP_2;
    *request.uri_mut() = path.parse().expect("methods are plain words");
    let headers = request.headers_mut();
    headers.insert(TE, HeaderValue::from_static("trailers"));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    if let Some(token) = token {
        headers.insert(AUTHORIZATION, token.clone());
    }
    let response = channel.call(request).await;
    let response = response.map_err(|error| Status::from_error(error.into()))?;
    if let Some(status) = told(response.headers()) {
        status?;
    }
    let (head, body) = response.into_parts();
    let http = head.status;
    Ok(Answers { body, http })
}

impl Answers {
    /// Waits for the next message; none when the trailers say that all is well.
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
            match told(&trailers) {
                Some(Ok(())) if partial.received == 0 => return Ok(None),
                Some(Ok(())) => return Err(Status::internal("the answer ends early")),
                Some(Err(status)) => return Err(status),
                None => break,
            }
        }
        Err(Status::unknown(format!("HTTP status {}", self.http)))
    }

    /// Waits for the one message that there must be, and the end.
    pub async fn only(mut self, pool: &Pool) -> Result<Bytes, Status> {
        let Some(message) = self.next(pool).await? else {
            return Err(Status::internal("the answer has no message"));
        };
        match self.next(pool).await? {
            None => Ok(message),
            Some(_) => Err(Status::internal("the answer is not one plain message")),
        }
    }

    /// Tells, without waiting, whether nothing has come since the last message: no end either.
    pub async fn is_quiet(&mut self) -> bool {
        let mut next = self.body.frame();
        poll_fn(|context| Poll::Ready(Pin::new(&mut next).poll(context).is_pending())).await
    }
}

/// A message of which some frames have arrived.
#[derive(Default)]
struct Partial {
    prefix: [u8; PREFIX_BYTES],
    /// Bytes of the prefix that are there.
    received: usize,
    size: usize,
    memory: Vec<u8>,
}

impl Partial {
    /// Adds what arrived; returns the message once it is whole. That of one frame is not copied.
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
