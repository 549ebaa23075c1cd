// SPDX-License-Identifier: Apache-2.0
//! Calls of one session over one stream, each when the one before has its answer: the server has a
//! thread for them already. It is opened by the first call, and again by the call that finds it
//! ended: on the server's plain socket, if it has one here, else over HTTP/2. What cannot have it is
//! made by itself: a call beside another one, and all calls of a session that the server lends no
//! stream.

use std::convert::Infallible;
use std::fs::File;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::channel::{Channel, Sender};
use prost::Message;
use tonic::body::Body;

use crate::call::session::PATIENCE;
use crate::rpc::connection::Link;
use crate::rpc::failure::{Failure, failure};
use crate::rpc::frame::Pieces;
use crate::rpc::http2::Answers;
use crate::rpc::plain_socket::PlainSocket;

const METHOD: &str = "ExecuteStream";
/// Field of CALL_QUOTA_EXCEEDED where streams of lists are taken: a call by itself needs none.
const STREAM_LIMIT: &str = "max_conversations";

/// A stream on which the last request has its answer.
enum Open {
    Plain(PlainSocket),
    Http {
        requests: Sender<Bytes, Infallible>,
        answers: Answers,
    },
}

#[derive(Default)]
struct Line {
    open: Option<Open>,
    /// Where the server's plain socket is; none where there is none, or it cannot be reached.
    plain: Option<PathBuf>,
    refused: bool,
    /// When the last answer came, and how long after it the server may be ending the stream.
    used: Option<Instant>,
    most_idle: Duration,
}

/// The stream of a session; whoever has the lock speaks.
pub struct Conversation(Mutex<Line>);

/// Tells whether a server has no stream for a session; then nothing has run.
fn is_about_streams(failure: &Failure) -> bool {
    matches!(failure, Failure::Refused { reason, field, .. }
        if reason == "CALL_QUOTA_EXCEEDED" && field == STREAM_LIMIT)
}

fn pieces(message: &impl Message) -> Result<Pieces, Failure> {
    Pieces::of(message).map_err(|status| failure(&status))
}

impl Open {
    /// Opens a stream with its first request.
    async fn over_http(link: &Link, framed: Bytes) -> Result<Self, Failure> {
        let channel = link.ready().await?;
        let (mut requests, body) = Channel::new(1);
        drop(requests.send_data(framed).await);
        let answers = link.call(channel, METHOD, Body::new(body)).await;
        let answers = answers.map_err(|status| failure(&status))?;
        Ok(Self::Http { requests, answers })
    }

    /// Sends a request if the stream still stands; else nothing was sent that could run.
    fn send(&mut self, link: &Link, message: &impl Message) -> Result<bool, Failure> {
        Ok(match self {
            Self::Plain(socket) => {
                let pieces = pieces(message)?;
                socket.is_quiet() && socket.send(&mut pieces.slices()).is_ok()
            }
            Self::Http { requests, answers } => {
                let framed = link.framed(message)?;
                link.drive(async {
                    link.look().await;
                    answers.is_quiet().await && requests.send_data(framed).await.is_ok()
                })
            }
        })
    }

    fn answer(&mut self, link: &Link) -> Result<Bytes, Failure> {
        let ended = || Failure::Lost("the server has ended the conversation".to_owned());
        let answer = match self {
            Self::Plain(socket) => socket.next(link.pool()),
            Self::Http { answers, .. } => link.drive(answers.next(link.pool())),
        };
        answer.map_err(|status| failure(&status))?.ok_or_else(ended)
    }
}

impl Line {
    /// Opens a stream with its first request, and waits for the answer.
    fn begin(&mut self, link: &Link, message: &impl Message) -> Result<Bytes, Failure> {
        let plain = self.plain.as_deref();
        let token = link.token();
        let socket = plain.and_then(|path| PlainSocket::open(path, token.as_ref(), None).ok());
        let open = match socket {
            Some(socket) => {
                socket.send_or_finish(&mut pieces(message)?.slices());
                Open::Plain(socket)
            }
            None => {
                self.plain = None;
                link.drive(Open::over_http(link, link.framed(message)?))?
            }
        };
        self.open.insert(open).answer(link)
    }

    /// Leaves a stream that has idled for long.
    fn leave_if_idle(&mut self) {
        let idled = self.used.is_some_and(|one| one.elapsed() > self.most_idle);
        if let Some(Open::Plain(socket)) = self.open.take_if(|_| idled) {
            socket.finish();
        }
    }

    fn ask(&mut self, link: &Link, message: &impl Message) -> Result<Option<Bytes>, Failure> {
        self.leave_if_idle();
        let stood = match &mut self.open {
            Some(open) => open.send(link, message)?,
            None => false,
        };
        let answer = match &mut self.open {
            Some(open) if stood => open.answer(link),
            _ => self.begin(link, message),
        };
        if answer.is_err() {
            self.open = None;
        }
        self.used = Some(Instant::now());
        match answer {
            // The server takes no more calls here: perhaps it does over another connection.
            Err(Failure::Unreachable(_)) if stood => Ok(None),
            Err(failure) if is_about_streams(&failure) => {
                self.refused = true;
                Ok(None)
            }
            other => other.map(Some),
        }
    }
}

impl Conversation {
    /// Starts with no stream; the first may be on a plain socket. One that has idled for more than
    /// `most_idle` is not used again.
    pub fn on(plain: Option<PathBuf>, most_idle: Duration) -> Self {
        Self(Mutex::new(Line {
            plain,
            most_idle,
            ..Line::default()
        }))
    }

    /// Opens a stream on the plain socket whose first message, for the session that it names, brings
    /// memory; tells whether the session has that now.
    pub fn bring(&self, link: &Link, memory: &File, message: &impl Message) -> bool {
        let Some(mut line) = self.line() else {
            return false;
        };
        let token = link.token();
        let plain = line.plain.as_deref();
        let socket = plain.map(|path| PlainSocket::open(path, token.as_ref(), Some(memory)));
        let (Some(Ok(socket)), Ok(pieces)) = (socket, pieces(message)) else {
            return false;
        };
        socket.send_or_finish(&mut pieces.slices());
        let open = line.open.insert(Open::Plain(socket));
        let answer = open.answer(link);
        line.used = Some(Instant::now());
        if let Err(failure) = &answer {
            line.open = None;
            line.refused = is_about_streams(failure);
        }
        answer.is_ok()
    }

    fn line(&self) -> Option<MutexGuard<'_, Line>> {
        match self.0.try_lock() {
            Ok(line) => Some(line),
            Err(TryLockError::Poisoned(poisoned)) => Some(PoisonError::into_inner(poisoned)),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Sends a message and returns its answer; none if the call must be made by itself:
    /// then nothing has run.
    pub fn ask(&self, link: &Link, message: &impl Message) -> Result<Option<Bytes>, Failure> {
        match self.line() {
            Some(mut line) if !line.refused => line.ask(link, message),
            _ => Ok(None),
        }
    }

    /// Lets a last call go out, with word that there are no more requests; waits until the server
    /// has heard both.
    pub async fn close<T>(&self, link: &Link, last: impl Future<Output = T>) {
        let pool = link.pool();
        let open = self.line().and_then(|mut line| line.open.take());
        match open {
            Some(Open::Plain(socket)) => {
                socket.finish();
                last.await;
                socket.wait_for_end(pool, PATIENCE);
            }
            Some(Open::Http {
                requests,
                mut answers,
            }) => {
                drop(requests);
                last.await;
                drop(answers.next(pool).await);
            }
            None => drop(last.await),
        }
    }
}
