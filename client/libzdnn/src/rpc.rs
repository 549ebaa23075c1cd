// SPDX-License-Identifier: Apache-2.0
//! One connection, and calls over it. The calling thread drives it; there are no others.

use std::error::Error;
use std::future::poll_fn;
use std::time::Instant;

use bytes::{Buf, BufMut, Bytes};
use http::HeaderValue;
use http::uri::PathAndQuery;
use prost::Message;
use tokio::runtime::{Builder, Runtime};
use tokio_stream::Stream;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Request, Status, Streaming};
use tower_service::Service;

use crate::environment::Place;
use crate::exchange::{Pool, exchange};
use crate::socket::Connector;
use crate::wire::SanitizerReport;

const SERVICE: &str = "/nnpa.zdnn.v1.AcceleratorService/";
const WINDOW_BYTES: u32 = 16 << 20;
/// Largest frame of an answer: each is read by one or two system calls.
const FRAME_BYTES: u32 = 256 << 10;

/// Why a call has no answer.
#[derive(Debug)]
pub enum Failure {
    /// There is no server, or it lets nobody in.
    Unreachable(String),
    /// The connection or the answer was lost: nobody knows what has run.
    Lost(String),
    /// The server refused, for a reason of the contract's enum ErrorReason.
    Refused {
        reason: String,
        kind: String,
        message: String,
    },
}

#[derive(Clone, PartialEq, Message)]
struct RpcStatus {
    #[prost(message, repeated, tag = "3")]
    details: Vec<prost_types::Any>,
}

#[derive(Clone, PartialEq, Message)]
struct ErrorInfo {
    #[prost(string, tag = "1")]
    reason: String,
    #[prost(string, tag = "2")]
    domain: String,
    #[prost(map = "string, string", tag = "3")]
    metadata: std::collections::HashMap<String, String>,
}

fn error_info(status: &Status) -> Option<ErrorInfo> {
    let details = RpcStatus::decode(status.details()).ok()?.details;
    let infos = details
        .iter()
        .filter(|one| one.type_url.ends_with("/google.rpc.ErrorInfo"));
    infos
        .flat_map(|one| ErrorInfo::decode(&one.value[..]))
        .find(|one| one.domain == "nnpa")
}

/// Returns what the sanitizer reports beside an error, a line each.
fn reports(status: &Status) -> String {
    let Ok(RpcStatus { details }) = RpcStatus::decode(status.details()) else {
        return String::new();
    };
    let reports = details
        .iter()
        .filter(|one| one.type_url.ends_with("/nnpa.zdnn.v1.SanitizerReport"));
    reports
        .flat_map(|one| SanitizerReport::decode(&one.value[..]))
        .map(|one| format!("\n{}", one.text))
        .collect()
}

/// Returns the words of an error and of what caused it.
fn causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let words = cause.to_string();
        if !text.contains(&words) {
            text = format!("{text}: {words}");
        }
        next = cause.source();
    }
    text
}

/// Returns what a gRPC status says, or what caused it where that is known.
fn told(status: &Status) -> String {
    match status.source() {
        Some(cause) => causes(cause),
        None => status.message().to_owned(),
    }
}

fn never_connected(status: &Status) -> bool {
    let mut next = status.source();
    while let Some(cause) = next {
        if cause.is::<tonic::ConnectError>() {
            return true;
        }
        next = cause.source();
    }
    false
}

fn failure(status: &Status) -> Failure {
    if let Some(info) = error_info(status) {
        let kind = info.metadata.get("kind").cloned().unwrap_or_default();
        let message = format!("{}{}", status.message(), reports(status));
        let reason = info.reason;
        return match reason.as_str() {
            "SERVER_DRAINING" | "TOKEN_INVALID" => Failure::Unreachable(message),
            _ => Failure::Refused {
                reason,
                kind,
                message,
            },
        };
    }
    match status.code() {
        Code::Unavailable if never_connected(status) => Failure::Unreachable(told(status)),
        Code::Unauthenticated | Code::Unimplemented => Failure::Unreachable(told(status)),
        Code::ResourceExhausted => Failure::Refused {
            reason: "MESSAGE_TOO_LARGE".to_owned(),
            kind: String::new(),
            message: status.message().to_owned(),
        },
        _ => Failure::Lost(told(status)),
    }
}

/// Messages travel as bytes that are encoded before and decoded after the call.
#[derive(Clone, Default)]
struct Plain;

impl Codec for Plain {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Plain {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, target: &mut EncodeBuf<'_>) -> Result<(), Status> {
        target.put(item);
        Ok(())
    }
}

impl Decoder for Plain {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, source: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(source.copy_to_bytes(source.remaining())))
    }
}

/// Returns the path of a method of the accelerator's service; that of another one is given whole.
fn route(method: &str) -> String {
    if method.starts_with('/') {
        method.to_owned()
    } else {
        format!("{SERVICE}{method}")
    }
}

fn parsed<R: Message + Default>(bytes: Bytes) -> Result<R, Failure> {
    R::decode(bytes).map_err(|error| Failure::Lost(error.to_string()))
}

/// A server, connected when the first call is made and again when the connection was lost.
pub struct Link {
    runtime: Runtime,
    channel: Channel,
    token: Option<MetadataValue<Ascii>>,
    pool: Pool,
}

fn read(path: &str) -> Result<Vec<u8>, Failure> {
    std::fs::read(path).map_err(|error| Failure::Unreachable(format!("{path}: {error}")))
}

fn tls(place: &Place) -> Result<Option<ClientTlsConfig>, Failure> {
    let Some(ca) = place.tls_ca.as_deref() else {
        return Ok(None);
    };
    let host = place.target.rsplit_once(':').map_or("", |(host, _)| host);
    let name = host.trim_start_matches('[').trim_end_matches(']');
    let mut config = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(read(ca)?))
        .domain_name(name);
    if let (Some(cert), Some(key)) = (&place.tls_cert, &place.tls_key) {
        config = config.identity(Identity::from_pem(read(cert)?, read(key)?));
    }
    Ok(Some(config))
}

fn endpoint(place: &Place) -> Result<Endpoint, Failure> {
    let wrong = |error: tonic::transport::Error| Failure::Unreachable(causes(&error));
    let is_unix = place.target.starts_with("unix:");
    let config = if is_unix { None } else { tls(place)? };
    let scheme = if config.is_some() { "https" } else { "http" };
    let authority = if is_unix { "localhost" } else { &place.target };
    let endpoint = Endpoint::from_shared(format!("{scheme}://{authority}"))
        .map_err(wrong)?
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .max_frame_size(FRAME_BYTES);
    match config {
        Some(config) => endpoint.tls_config(config).map_err(wrong),
        None => Ok(endpoint),
    }
}

impl Link {
    /// Prepares a connection; nothing is opened yet.
    pub fn new(place: &Place) -> Result<Self, Failure> {
        let wrong = |error: &dyn Error| Failure::Unreachable(causes(error));
        let endpoint = endpoint(place)?;
        let runtime = Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()
            .map_err(|error| wrong(&error))?;
        let inside = runtime.enter();
        let connector = Connector {
            target: place.target.clone(),
        };
        let channel = endpoint.connect_with_connector_lazy(connector);
        drop(inside);
        let token = place
            .token
            .as_ref()
            .map(|text| format!("Bearer {text}").parse());
        let token = token.transpose().map_err(|error| wrong(&error))?;
        Ok(Self {
            runtime,
            channel,
            token,
            pool: Pool::default(),
        })
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(token) = &self.token {
            request
                .metadata_mut()
                .insert("authorization", token.clone());
        }
        request
    }

    fn path(method: &str) -> PathAndQuery {
        PathAndQuery::try_from(route(method)).expect("methods are plain words")
    }

    /// Returns a channel that has seen whether the connection still stands.
    async fn ready(&self) -> Result<Channel, Failure> {
        for _ in 0..2 {
            tokio::task::yield_now().await;
        }
        let mut channel = self.channel.clone();
        poll_fn(|context| channel.poll_ready(context))
            .await
            .map_err(|error| Failure::Unreachable(causes(&error)))?;
        Ok(channel)
    }

    async fn streaming(&self) -> Result<Grpc<Channel>, Failure> {
        Ok(Grpc::new(self.ready().await?).max_decoding_message_size(usize::MAX))
    }

    /// Makes one call with one message each way.
    pub fn unary<R: Message + Default>(
        &self,
        method: &str,
        message: &impl Message,
    ) -> Result<R, Failure> {
        let wrong = |status: Status| failure(&status);
        let framed = self.pool.framed(message).map_err(wrong)?;
        self.runtime.block_on(async {
            let channel = self.ready().await?;
            parsed(
                self.exchanged(channel, method, framed)
                    .await
                    .map_err(wrong)?,
            )
        })
    }

    async fn exchanged(
        &self,
        channel: Channel,
        method: &str,
        framed: Bytes,
    ) -> Result<Bytes, Status> {
        let token = self.token.as_ref().map(MetadataValue::as_encoded_bytes);
        let token = token.and_then(|bytes| HeaderValue::from_bytes(bytes).ok());
        let path = route(method);
        exchange(channel, &self.pool, &path, token.as_ref(), framed).await
    }

    /// Makes one call whose answer nobody needs, and gives up at the deadline.
    pub fn farewell(&self, method: &str, message: &impl Message, deadline: Instant) {
        let Ok(framed) = self.pool.framed(message) else {
            return;
        };
        self.runtime.block_on(async {
            let call = async {
                let channel = self.ready().await.ok()?;
                self.exchanged(channel, method, framed).await.ok()
            };
            drop(tokio::time::timeout_at(deadline.into(), call).await);
        });
    }

    /// Makes one call with many messages out.
    pub fn upload<R: Message + Default>(
        &self,
        method: &str,
        messages: impl Stream<Item = Bytes> + Send + 'static,
    ) -> Result<R, Failure> {
        let request = self.request(messages);
        self.runtime.block_on(async {
            let mut grpc = self.streaming().await?;
            let answer = grpc
                .client_streaming(request, Self::path(method), Plain)
                .await;
            parsed(answer.map_err(|status| failure(&status))?.into_inner())
        })
    }

    /// Makes one call with many messages back, each given to `take`.
    pub fn download<R: Message + Default>(
        &self,
        method: &str,
        message: &impl Message,
        mut take: impl FnMut(R) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let request = self.request(Bytes::from(message.encode_to_vec()));
        self.runtime.block_on(async {
            let mut grpc = self.streaming().await?;
            let answer = grpc
                .server_streaming(request, Self::path(method), Plain)
                .await;
            let mut parts: Streaming<Bytes> =
                answer.map_err(|status| failure(&status))?.into_inner();
            while let Some(part) = parts.message().await.map_err(|status| failure(&status))? {
                take(parsed(part)?)?;
            }
            Ok(())
        })
    }
}
