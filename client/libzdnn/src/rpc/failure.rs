// SPDX-License-Identifier: Apache-2.0
//! Why a call has no answer: gRPC statuses and their details, as reasons of the contract.

use std::error::Error;
use std::iter::successors;
use std::time::Duration;

use http::HeaderMap;
use prost::Message;
use tonic::{Code, Status};

use crate::wire::SanitizerReport;

/// Why a call has no answer.
#[derive(Debug)]
pub enum Failure {
    /// No server was reached, or it does not admit the program.
    Unreachable(String),
    /// The connection or the answer was lost: the call may have run or not.
    Lost(String),
    /// The server refused, for a reason of the contract's enum ErrorReason.
    Refused {
        reason: String,
        kind: String,
        field: String,
        message: String,
        /// The delay after which the server asks to try again.
        retry: Option<Duration>,
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

#[derive(Clone, PartialEq, Message)]
struct RetryInfo {
    #[prost(message, optional, tag = "1")]
    retry_delay: Option<prost_types::Duration>,
}

/// Returns the details of a type that a status carries.
fn details<T: Message + Default>(status: &Status, type_name: &str) -> Vec<T> {
    let Ok(RpcStatus { details }) = RpcStatus::decode(status.details()) else {
        return Vec::new();
    };
    let details = details.iter();
    let named = details.filter(|detail| detail.type_url.ends_with(type_name));
    let decoded = named.flat_map(|detail| T::decode(&detail.value[..]));
    decoded.collect()
}

fn error_info(status: &Status) -> Option<ErrorInfo> {
    let infos = details::<ErrorInfo>(status, "/google.rpc.ErrorInfo");
    infos.into_iter().find(|info| info.domain == "nnpa")
}

fn retry(status: &Status) -> Option<Duration> {
    let infos = details::<RetryInfo>(status, "/google.rpc.RetryInfo");
    infos.first()?.retry_delay?.try_into().ok()
}

/// Returns the sanitizer's reports beside an error, each on a line.
fn reports(status: &Status) -> String {
    let reports = details::<SanitizerReport>(status, "/nnpa.zdnn.v1.SanitizerReport");
    let lines = reports.iter().map(|report| format!("\n{}", report.text));
    lines.collect()
}

/// Returns the texts of an error and its causes.
pub fn causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    for cause in successors(error.source(), |cause| (*cause).source()) {
        let words = cause.to_string();
        if !text.contains(&words) {
            text = format!("{text}: {words}");
        }
    }
    text
}

/// Returns the message of a gRPC status, or of its cause.
fn explanation(status: &Status) -> String {
    match status.source() {
        Some(cause) => causes(cause),
        None => status.message().to_owned(),
    }
}

fn never_connected(status: &Status) -> bool {
    let mut causes = successors(status.source(), |cause| (*cause).source());
    causes.any(|cause| cause.is::<tonic::ConnectError>())
}

/// Returns the status that headers or trailers carry, if any.
pub fn status_in(headers: &HeaderMap) -> Option<Result<(), Status>> {
    let status = Status::from_header_map(headers)?;
    Some(match status.code() {
        Code::Ok => Ok(()),
        _ => Err(status),
    })
}

impl Failure {
    /// Returns a refusal by a reason of the contract that concerns no field.
    pub fn refused(reason: &str, message: String) -> Self {
        Self::Refused {
            reason: reason.to_owned(),
            kind: String::new(),
            field: String::new(),
            message,
            retry: None,
        }
    }
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        if let Some(info) = error_info(&status) {
            let metadata = |key| info.metadata.get(key).cloned().unwrap_or_default();
            let message = format!("{}{}", status.message(), reports(&status));
            return match info.reason.as_str() {
                "SERVER_DRAINING" | "TOKEN_INVALID" => Self::Unreachable(message),
                _ => Self::Refused {
                    kind: metadata("kind"),
                    field: metadata("field"),
                    message,
                    retry: retry(&status),
                    reason: info.reason,
                },
            };
        }
        let why = explanation(&status);
        match status.code() {
            Code::Unavailable if never_connected(&status) => Self::Unreachable(format!(
                "{why}. Check that nnpa-server listens there, ZDNN_SERVER, and TLS"
            )),
            Code::Unauthenticated | Code::Unimplemented => Self::Unreachable(why),
            Code::ResourceExhausted => {
                Self::refused("MESSAGE_TOO_LARGE", status.message().to_owned())
            }
            _ => Self::Lost(why),
        }
    }
}
