// SPDX-License-Identifier: Apache-2.0
//! One connection, and calls over it. The calling thread drives it; there are no others.

use std::error::Error;
use std::future::{Future, poll_fn};
use std::time::Instant;

use bytes::{Buf, BufMut, Bytes};
use http::HeaderValue;
use http::uri::PathAndQuery;
use http_body_util::Full;
use prost::Message;
use tokio::runtime::{Builder, Runtime};
use tokio_stream::Stream;
use tonic::body::Body;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Request, Status, Streaming};
use tower_service::Service;

use crate::process::environment::Place;
use crate::rpc::failure::{Failure, causes, failure};
use crate::rpc::http2::{self, Answers, Pool};
use crate::rpc::socket::Connector;
use crate::rpc::stream::Conversation;

const SERVICE: &str = "/nnpa.zdnn.v1.AcceleratorService/";
const WINDOW_BYTES: u32 = 16 << 20;
/// Largest frame of an answer: each is read by one or two system calls.
const FRAME_BYTES: u32 = 256 << 10;

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

    /// Lets the connection see what has happened to it meanwhile.
    pub async fn look(&self) {
        for _ in 0..2 {
            tokio::task::yield_now().await;
        }
    }

    /// Returns a channel that has seen whether the connection still stands.
    pub async fn ready(&self) -> Result<Channel, Failure> {
        self.look().await;
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
        let framed = self.framed(message)?;
        parsed(self.drive(self.single(method, framed))?)
    }

    /// Makes one call with one message each way: over a conversation by its method, where it is
    /// free, else by itself.
    pub fn conversed<R: Message + Default>(
        &self,
        conversation: &Conversation,
        method: &str,
        message: &impl Message,
    ) -> Result<R, Failure> {
        match conversation.ask(self, message)? {
            Some(answer) => parsed(answer),
            None => self.unary(method, message),
        }
    }

    /// Returns a message as it travels over HTTP/2.
    pub fn framed(&self, message: &impl Message) -> Result<Bytes, Failure> {
        let framed = self.pool.framed(message);
        framed.map_err(|status| failure(&status))
    }

    /// Runs a call to its end in the calling thread.
    pub fn drive<T>(&self, call: impl Future<Output = T>) -> T {
        self.runtime.block_on(call)
    }

    /// Memory for messages.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    async fn single(&self, method: &str, framed: Bytes) -> Result<Bytes, Failure> {
        let body = Body::new(Full::new(framed));
        let answers = self.call(self.ready().await?, method, body).await;
        let answer = match answers {
            Ok(answers) => answers.only(&self.pool).await,
            Err(status) => Err(status),
        };
        answer.map_err(|status| failure(&status))
    }

    /// Begins a call over a channel that is ready.
    pub async fn call(
        &self,
        channel: Channel,
        method: &str,
        body: Body,
    ) -> Result<Answers, Status> {
        http2::call(channel, &route(method), self.token().as_ref(), body).await
    }

    /// What calls show that they may come in.
    pub fn token(&self) -> Option<HeaderValue> {
        let token = self.token.as_ref().map(MetadataValue::as_encoded_bytes);
        token.and_then(|bytes| HeaderValue::from_bytes(bytes).ok())
    }

    /// Makes one call whose answer nobody needs, ends a conversation, and gives up at the deadline.
    pub fn farewell(
        &self,
        conversation: &Conversation,
        method: &str,
        message: &impl Message,
        deadline: Instant,
    ) {
        let Ok(framed) = self.framed(message) else {
            return;
        };
        self.drive(async {
            let call = self.single(method, framed);
            let all = conversation.close(self, call);
            drop(tokio::time::timeout_at(deadline.into(), all).await);
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
