// SPDX-License-Identifier: Apache-2.0
//! The plain channel: a connection of HTTP/2 on which each call is a call of its own. The calling
//! thread drives it; there are no others.

use std::error::Error;
use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::HeaderValue;
use http_body_util::Full;
use http_body_util::channel::Channel as BodyChannel;
use tokio::runtime::{Builder, Runtime};
use tonic::body::Body;
use tonic::transport::{self, Certificate, ClientTlsConfig, Identity};
use tower_service::Service;

use crate::process::environment::Endpoint;
use crate::rpc::channel::Channel;
use crate::rpc::failure::{Failure, causes};
use crate::rpc::frame::Frame;
use crate::rpc::http2::{self, Answers, Credentials};
use crate::rpc::pool::Pool;
use crate::rpc::socket::Connector;

const SERVICE: &str = "/nnpa.zdnn.v1.AcceleratorService/";
const WINDOW_BYTES: u32 = 16 << 20;
/// Largest frame of an answer: each is read by one or two system calls.
const FRAME_BYTES: u32 = 256 << 10;

/// Returns the path of a method; a bare name is a method of AcceleratorService.
fn route(method: &str) -> String {
    if method.starts_with('/') {
        method.to_owned()
    } else {
        format!("{SERVICE}{method}")
    }
}

/// A connection to a server, opened by the first call, and reopened after it was lost.
#[derive(Clone)]
pub struct Connection {
    runtime: Arc<Runtime>,
    channel: transport::Channel,
    credentials: Credentials,
    pool: Pool,
}

fn read(path: &str) -> Result<Vec<u8>, Failure> {
    std::fs::read(path).map_err(|error| Failure::Unreachable(format!("{path}: {error}")))
}

fn tls(endpoint: &Endpoint) -> Result<Option<ClientTlsConfig>, Failure> {
    let Some(ca) = endpoint.tls_ca.as_deref() else {
        return Ok(None);
    };
    let parts = endpoint.target.rsplit_once(':');
    let host = parts.map_or("", |(host, _)| host);
    let name = host.trim_start_matches('[').trim_end_matches(']');
    let mut config = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(read(ca)?))
        .domain_name(name);
    if let (Some(cert), Some(key)) = (&endpoint.tls_cert, &endpoint.tls_key) {
        config = config.identity(Identity::from_pem(read(cert)?, read(key)?));
    }
    Ok(Some(config))
}

#[allow(clippy::needless_pass_by_value)] // as map_err passes it
fn unreachable(error: impl Error) -> Failure {
    Failure::Unreachable(causes(&error))
}

/// Refuses an address that is neither host:port nor unix:/path.
fn check(target: &str) -> Result<(), Failure> {
    let port = target.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
    let names_a_port = matches!(port, Some(Ok(_))) && !target.contains("://");
    if target.starts_with("unix:") || names_a_port {
        return Ok(());
    }
    let expected = "ZDNN_SERVER must be host:port or unix:/path";
    Err(Failure::Unreachable(expected.to_owned()))
}

fn configured(endpoint: &Endpoint) -> Result<transport::Endpoint, Failure> {
    check(&endpoint.target)?;
    let is_unix = endpoint.target.starts_with("unix:");
    let config = if is_unix { None } else { tls(endpoint)? };
    let scheme = if config.is_some() { "https" } else { "http" };
    let authority = if is_unix {
        "localhost"
    } else {
        &endpoint.target
    };
    let configured = transport::Endpoint::from_shared(format!("{scheme}://{authority}"))
        .map_err(unreachable)?
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .max_frame_size(FRAME_BYTES);
    match config {
        Some(config) => configured.tls_config(config).map_err(unreachable),
        None => Ok(configured),
    }
}

impl Connection {
    /// Prepares a connection; nothing is opened yet.
    pub fn new(endpoint: &Endpoint) -> Result<Self, Failure> {
        let configured = configured(endpoint)?;
        let runtime = Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()
            .map_err(unreachable)?;
        let inside = runtime.enter();
        let connector = Connector {
            target: endpoint.target.clone(),
        };
        let channel = configured.connect_with_connector_lazy(connector);
        drop(inside);
        let token = endpoint.token.as_ref();
        let token = token.map(|text| HeaderValue::try_from(format!("Bearer {text}")));
        let token = token.transpose().map_err(unreachable)?;
        Ok(Self {
            runtime: Arc::new(runtime),
            channel,
            credentials: Credentials {
                token,
                ticket: None,
            },
            pool: Pool::default(),
        })
    }

    /// Returns the same connection for calls with a ticket, or with none.
    pub fn with_ticket(&self, ticket: Option<HeaderValue>) -> Self {
        let mut connection = self.clone();
        connection.credentials.ticket = ticket;
        connection
    }

    /// Returns the ticket of its calls, if a proxy has given one.
    pub fn ticket(&self) -> Option<&HeaderValue> {
        self.credentials.ticket.as_ref()
    }

    /// Makes a unary call; returns its answer, and the ticket for calls of the created object: the
    /// answer's, else this connection's.
    pub fn create(
        &self,
        method: &str,
        request: &Frame,
    ) -> Result<(Bytes, Option<HeaderValue>), Failure> {
        let (answer, ticket) = self.drive(self.single(method, request))?;
        Ok((answer, ticket.or_else(|| self.ticket().cloned())))
    }

    /// Begins a call that stays open until the returned value is dropped.
    pub fn open(&self, method: &str, request: &Frame) -> Result<Answers, Failure> {
        self.drive(self.call(method, self.body(request)))
    }

    /// Runs a call to its end in the calling thread.
    pub fn drive<T>(&self, call: impl Future<Output = T>) -> T {
        self.runtime.block_on(call)
    }

    /// Lets the connection process frames that have arrived meanwhile.
    pub async fn process_events(&self) {
        for _ in 0..2 {
            tokio::task::yield_now().await;
        }
    }

    /// Begins a call once the connection is established.
    pub async fn call(&self, method: &str, body: Body) -> Result<Answers, Failure> {
        let channel = self.ready().await?;
        Ok(http2::call(channel, &route(method), &self.credentials, body).await?)
    }

    /// Returns the token that calls carry.
    pub fn token(&self) -> Option<&HeaderValue> {
        self.credentials.token.as_ref()
    }

    /// Returns the memory for messages.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    async fn ready(&self) -> Result<transport::Channel, Failure> {
        self.process_events().await;
        let mut channel = self.channel.clone();
        poll_fn(|context| channel.poll_ready(context))
            .await
            .map_err(unreachable)?;
        Ok(channel)
    }

    fn body(&self, request: &Frame) -> Body {
        Body::new(Full::new(request.joined(&self.pool)))
    }

    /// Makes a unary call; returns its answer and the ticket that comes with it.
    async fn single(
        &self,
        method: &str,
        request: &Frame,
    ) -> Result<(Bytes, Option<HeaderValue>), Failure> {
        let mut answers = self.call(method, self.body(request)).await?;
        let ticket = answers.ticket.take();
        Ok((answers.only(&self.pool).await?, ticket))
    }

    /// Sends many requests and returns their one answer.
    pub fn send_stream(
        &self,
        method: &str,
        requests: impl Iterator<Item = Frame> + Send + 'static,
    ) -> Result<Bytes, Failure> {
        let (mut sender, body) = BodyChannel::<Bytes>::new(1);
        let pool = self.pool.clone();
        self.drive(async {
            tokio::spawn(async move {
                for request in requests {
                    if sender.send_data(request.joined(&pool)).await.is_err() {
                        return; // the call has ended
                    }
                }
            });
            let answers = self.call(method, Body::new(body)).await?;
            Ok(answers.only(&self.pool).await?)
        })
    }

    /// Sends one request and passes each of its answers to `receive`.
    pub fn receive_stream(
        &self,
        method: &str,
        request: &Frame,
        mut receive: impl FnMut(Bytes) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        self.drive(async {
            let mut answers = self.call(method, self.body(request)).await?;
            while let Some(answer) = answers.next(&self.pool).await? {
                receive(answer)?;
            }
            Ok(())
        })
    }
}

impl Channel for Connection {
    fn unary(&self, method: &str, request: &Frame) -> Result<Bytes, Failure> {
        let (answer, _) = self.drive(self.single(method, request))?;
        Ok(answer)
    }

    fn close(&self, method: &str, request: &Frame, deadline: Instant) {
        let last = self.single(method, request);
        self.drive(async {
            drop(tokio::time::timeout_at(deadline.into(), last).await);
        });
    }
}
