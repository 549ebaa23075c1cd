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
use crate::rpc::channel::{Channel, Requests};
use crate::rpc::failure::{Failure, causes, failure};
use crate::rpc::frame::Frame;
use crate::rpc::http2::{self, Answers, Credentials};
use crate::rpc::pool::Pool;
use crate::rpc::socket::Connector;

const SERVICE: &str = "/nnpa.zdnn.v1.AcceleratorService/";
const WINDOW_BYTES: u32 = 16 << 20;
/// Largest frame of an answer: each is read by one or two system calls.
const FRAME_BYTES: u32 = 256 << 10;

/// Returns the path of a method of the accelerator's service; that of another one is given whole.
fn route(method: &str) -> String {
    if method.starts_with('/') {
        method.to_owned()
    } else {
        format!("{SERVICE}{method}")
    }
}

/// A connection to a server, opened by the first call and again when it was lost.
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
    let host = endpoint
        .target
        .rsplit_once(':')
        .map_or("", |(host, _)| host);
    let name = host.trim_start_matches('[').trim_end_matches(']');
    let mut config = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(read(ca)?))
        .domain_name(name);
    if let (Some(cert), Some(key)) = (&endpoint.tls_cert, &endpoint.tls_key) {
        config = config.identity(Identity::from_pem(read(cert)?, read(key)?));
    }
    Ok(Some(config))
}

fn unreachable(error: &dyn Error) -> Failure {
    Failure::Unreachable(causes(error))
}

/// Refuses an address of which no connection can come.
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
        .map_err(|error| unreachable(&error))?
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .max_frame_size(FRAME_BYTES);
    match config {
        Some(config) => configured
            .tls_config(config)
            .map_err(|error| unreachable(&error)),
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
            .map_err(|error| unreachable(&error))?;
        let inside = runtime.enter();
        let connector = Connector {
            target: endpoint.target.clone(),
        };
        let channel = configured.connect_with_connector_lazy(connector);
        drop(inside);
        let token = endpoint.token.as_ref();
        let token = token.map(|text| HeaderValue::try_from(format!("Bearer {text}")));
        let token = token.transpose().map_err(|error| unreachable(&error))?;
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

    /// The ticket of its calls, where a proxy has given one.
    pub fn ticket(&self) -> Option<&HeaderValue> {
        self.credentials.ticket.as_ref()
    }

    /// Makes a unary call; returns its answer and the ticket for what it has created: the one that
    /// comes with it, else that of the call.
    pub fn create(
        &self,
        method: &str,
        request: &Frame,
    ) -> Result<(Bytes, Option<HeaderValue>), Failure> {
        self.drive(async {
            let body = Body::new(Full::new(request.joined(&self.pool)));
            let mut answers = self.call(method, body).await?;
            let given = answers.ticket.take();
            let answer = answers.only(&self.pool).await;
            let answer = answer.map_err(|status| failure(&status))?;
            Ok((answer, given.or_else(|| self.ticket().cloned())))
        })
    }

    /// Begins a call that stays open for as long as what is returned is kept.
    pub fn open(&self, method: &str, request: &Frame) -> Result<Answers, Failure> {
        let body = Body::new(Full::new(request.joined(&self.pool)));
        self.drive(self.call(method, body))
    }

    /// Runs a call to its end in the calling thread.
    pub fn drive<T>(&self, call: impl Future<Output = T>) -> T {
        self.runtime.block_on(call)
    }

    /// Lets the connection process what has arrived meanwhile.
    pub async fn process_events(&self) {
        for _ in 0..2 {
            tokio::task::yield_now().await;
        }
    }

    /// Begins a call once the connection is known to stand.
    pub async fn call(&self, method: &str, body: Body) -> Result<Answers, Failure> {
        let channel = self.ready().await?;
        let answers = http2::call(channel, &route(method), &self.credentials, body).await;
        answers.map_err(|status| failure(&status))
    }

    /// The token that calls carry.
    pub fn token(&self) -> Option<&HeaderValue> {
        self.credentials.token.as_ref()
    }

    /// Memory for messages.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    async fn ready(&self) -> Result<transport::Channel, Failure> {
        self.process_events().await;
        let mut channel = self.channel.clone();
        poll_fn(|context| channel.poll_ready(context))
            .await
            .map_err(|error| unreachable(&error))?;
        Ok(channel)
    }

    async fn single(&self, method: &str, request: &Frame) -> Result<Bytes, Failure> {
        let body = Body::new(Full::new(request.joined(&self.pool)));
        let answers = self.call(method, body).await?;
        let answer = answers.only(&self.pool).await;
        answer.map_err(|status| failure(&status))
    }
}

impl Channel for Connection {
    fn unary(&self, method: &str, request: &Frame) -> Result<Bytes, Failure> {
        self.drive(self.single(method, request))
    }

    fn send_stream(&self, method: &str, requests: Requests) -> Result<Bytes, Failure> {
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
            let answer = answers.only(&self.pool).await;
            answer.map_err(|status| failure(&status))
        })
    }

    fn receive_stream(
        &self,
        method: &str,
        request: &Frame,
        receive: &mut dyn FnMut(Bytes) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let body = Body::new(Full::new(request.joined(&self.pool)));
        self.drive(async {
            let mut answers = self.call(method, body).await?;
            let pool = &self.pool;
            while let Some(answer) = answers
                .next(pool)
                .await
                .map_err(|status| failure(&status))?
            {
                receive(answer)?;
            }
            Ok(())
        })
    }

    fn close(&self, method: &str, request: &Frame, deadline: Instant) {
        let last = self.single(method, request);
        self.drive(async {
            drop(tokio::time::timeout_at(deadline.into(), last).await);
        });
    }
}
