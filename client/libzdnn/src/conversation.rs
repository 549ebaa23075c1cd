// SPDX-License-Identifier: Apache-2.0
//! Calls of one session over one stream, each when the one before has its answer: the server has a
//! thread for them already. It is opened by the first call, and again by the call that finds it
//! ended. What cannot have it is made by itself: a call beside another one, and all calls of a
//! session that the server lends no stream.

use std::convert::Infallible;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use bytes::Bytes;
use http_body_util::channel::{Channel, Sender};
use tonic::body::Body;

use crate::exchange::Answers;
use crate::failure::{Failure, failure};
use crate::rpc::Link;

const METHOD: &str = "ExecuteStream";
/// Field of CALL_QUOTA_EXCEEDED where streams of lists are taken: a call by itself needs none.
const STREAM_LIMIT: &str = "max_conversations";

/// A stream on which the last request has its answer.
struct Open {
    requests: Sender<Bytes, Infallible>,
    answers: Answers,
}

#[derive(Default)]
struct Line {
    open: Option<Open>,
    refused: bool,
}

/// The stream of a session; whoever has the lock speaks.
#[derive(Default)]
pub struct Conversation(Mutex<Line>);

/// Tells whether a server has no stream for a session; then nothing has run.
fn is_about_streams(failure: &Failure) -> bool {
    matches!(failure, Failure::Refused { reason, field, .. }
        if reason == "CALL_QUOTA_EXCEEDED" && field == STREAM_LIMIT)
}

impl Line {
    /// Opens a stream with its first request, and waits for the answer.
    async fn begin(&mut self, link: &Link, framed: Bytes) -> Result<Bytes, Failure> {
        let channel = link.ready().await?;
        let (mut requests, body) = Channel::new(1);
        drop(requests.send_data(framed).await);
        let answers = link.call(channel, METHOD, Body::new(body)).await;
        let answers = answers.map_err(|status| failure(&status))?;
        self.open = Some(Open { requests, answers });
        self.answer(link).await
    }

    /// Sends over the stream that is open; tells whether there is one, else nothing was sent.
    async fn send(&mut self, framed: Bytes) -> bool {
        let Some(open) = &mut self.open else {
            return false;
        };
        open.answers.is_quiet().await && open.requests.send_data(framed).await.is_ok()
    }

    async fn answer(&mut self, link: &Link) -> Result<Bytes, Failure> {
        let ended = || Failure::Lost("the server has ended the conversation".to_owned());
        let open = self.open.as_mut().ok_or_else(ended)?;
        let answer = open.answers.next(link.pool()).await;
        answer.map_err(|status| failure(&status))?.ok_or_else(ended)
    }

    async fn ask(&mut self, link: &Link, framed: &Bytes) -> Result<Option<Bytes>, Failure> {
        link.look().await;
        let stood = self.send(framed.clone()).await;
        let answer = match stood {
            true => self.answer(link).await,
            false => {
                self.open = None;
                self.begin(link, framed.clone()).await
            }
        };
        if answer.is_err() {
            self.open = None;
        }
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
    fn line(&self) -> Option<MutexGuard<'_, Line>> {
        match self.0.try_lock() {
            Ok(line) => Some(line),
            Err(TryLockError::Poisoned(poisoned)) => Some(PoisonError::into_inner(poisoned)),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Sends a framed message and returns its answer; none if the call must be made by itself:
    /// then nothing has run.
    pub fn ask(&self, link: &Link, framed: &Bytes) -> Result<Option<Bytes>, Failure> {
        match self.line() {
            Some(mut line) if !line.refused => link.drive(line.ask(link, framed)),
            _ => Ok(None),
        }
    }

    /// Lets a last call go out, with word that there are no more requests; waits until the server
    /// has heard both.
    pub async fn close<T>(&self, link: &Link, last: impl Future<Output = T>) {
        let open = self.line().and_then(|mut line| line.open.take());
        let answers = open.map(|open| open.answers); // without its other half it is half closed
        last.await;
        if let Some(mut answers) = answers {
            drop(answers.next(link.pool()).await);
        }
    }
}
