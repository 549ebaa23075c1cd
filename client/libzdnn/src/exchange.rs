// SPDX-License-Identifier: Apache-2.0
//! One unary gRPC call over HTTP/2 whose message is copied once on its way out and once on its way
//! in, into memory that calls share: fresh megabytes cost the kernel more than the copy.
//! Source: gRPC over HTTP2, doc/PROTOCOL-HTTP2.md of the gRPC project.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::{BufMut, Bytes};
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, TE};
use http::{Method, Request, Version};
use http_body_util::{BodyExt, Full};
use prost::Message;
use tonic::body::Body;
use tonic::transport::Channel;
use tonic::{Code, Status};
use tower_service::Service;

/// A message's prefix: one byte that says whether it is compressed, four with its length.
const PREFIX_BYTES: usize = 5;
/// Memory beyond this is given back after the call, bytes: twice the largest inline tensor.
const KEPT_BYTES: usize = 32 << 20;
const MOST_KEPT: usize = 4;

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
    fn take(&self, size: usize) -> Vec<u8> {
        let mut free = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = free.iter().position(|one| one.capacity() >= size);
        let at = fits.or_else(|| free.len().checked_sub(1));
        let mut memory = at.map(|at| free.swap_remove(at)).unwrap_or_default();
        memory.clear();
        memory.reserve(size);
        memory
    }

    fn lend(&self, memory: Vec<u8>) -> Bytes {
        let pool = self.clone();
        Bytes::from_owner(Lent { memory, pool })
    }

    /// Returns a message as it travels, with its prefix.
    pub fn framed(&self, message: &impl Message) -> Result<Bytes, Status> {
        let size = message.encoded_len();
        let told = u32::try_from(size);
        let told = told.map_err(|_| Status::resource_exhausted("a message has 4 GiB or more"))?;
        let mut memory = self.take(PREFIX_BYTES + size);
        memory.put_u8(0);
        memory.put_u32(told);
        let encoded = message.encode(&mut memory);
        encoded.map_err(|error| Status::internal(error.to_string()))?;
        Ok(self.lend(memory))
    }
}

fn told(headers: &HeaderMap) -> Option<Result<(), Status>> {
    let status = Status::from_header_map(headers)?;
    Some(match status.code() {
        Code::Ok => Ok(()),
        _ => Err(status),
    })
}

/// Sends a framed message over a channel that is ready, and returns the message that answers.
pub async fn exchange(
    mut channel: Channel,
    pool: &Pool,
    path: &str,
    token: Option<&HeaderValue>,
    framed: Bytes,
) -> Result<Bytes, Status> {
    let mut request = Request::new(Body::new(Full::new(framed)));
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
    match gathered(body, pool).await? {
        Some(message) => Ok(message),
        None => Err(Status::unknown(format!("HTTP status {}", head.status))),
    }
}

/// Returns the message of a body, once its trailers say that all is well; none without trailers.
async fn gathered(mut body: Body, pool: &Pool) -> Result<Option<Bytes>, Status> {
    let mut memory = Vec::new();
    let mut prefix = Vec::with_capacity(PREFIX_BYTES);
    let mut size = 0;
    while let Some(frame) = body.frame().await {
        let mut data = match frame?.into_data() {
            Ok(data) => data,
            Err(frame) => {
                let trailers = frame.into_trailers().unwrap_or_default();
                let Some(status) = told(&trailers) else {
                    return Ok(None);
                };
                status?;
                let whole = prefix.len() == PREFIX_BYTES && memory.len() == size;
                return match whole {
                    true => Ok(Some(pool.lend(memory))),
                    false => Err(Status::internal("the answer ends early")),
                };
            }
        };
        if prefix.len() < PREFIX_BYTES {
            let rest = PREFIX_BYTES - prefix.len();
            prefix.extend_from_slice(&data.split_to(rest.min(data.len())));
            if prefix.len() < PREFIX_BYTES {
                continue;
            }
            size = u32::from_be_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]) as usize;
            memory = pool.take(size.min(KEPT_BYTES));
        }
        if prefix[0] != 0 || memory.len() + data.len() > size {
            return Err(Status::internal("the answer is not one plain message"));
        }
        memory.extend_from_slice(&data);
    }
    Ok(None)
}
