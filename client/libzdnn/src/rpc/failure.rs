// SPDX-License-Identifier: Apache-2.0
//! Why a call has no answer: gRPC statuses and their details, as reasons of the contract.

use std::error::Error;
use std::time::Duration;

use http::HeaderMap;
use prost::Message;
use tonic::{Code, Status};

use crate::wire::SanitizerReport;

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
        field: String,
        message: String,
        /// After this the server asks to try again, if it does.
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
    let named = details
        .iter()
        .filter(|detail| detail.type_url.ends_with(type_name));
    named
        .flat_map(|detail| T::decode(&detail.value[..]))
        .collect()
}

fn error_info(status: &Status) -> Option<ErrorInfo> {
    let infos = details::<ErrorInfo>(status, "/google.rpc.ErrorInfo");
    infos.into_iter().find(|info| info.domain == "nnpa")
}

fn retry(status: &Status) -> Option<Duration> {
    let infos = details::<RetryInfo>(status, "/google.rpc.RetryInfo");
    infos.first()?.retry_delay?.try_into().ok()
}

/// Returns what the sanitizer reports beside an error, a line each.
fn reports(status: &Status) -> String {
    let reports = details::<SanitizerReport>(status, "/nnpa.zdnn.v1.SanitizerReport");
    let lines = reports.iter().map(|report| format!("\n{}", report.text));
    lines.collect()
}

/// Returns the words of an error and of what caused it.
pub fn causes(error: &dyn Error) -> String {
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

/// Returns the message of a gRPC status, or of its cause.
fn explanation(status: &Status) -> String {
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

/// Returns the status that headers or trailers carry, if any.
pub fn status_in(headers: &HeaderMap) -> Option<Result<(), Status>> {
    let status = Status::from_header_map(headers)?;
    Some(match status.code() {
        Code::Ok => Ok(()),
        _ => Err(status),
    })
}

/// Translates a gRPC status.
pub fn failure(status: &Status) -> Failure {
    if let Some(info) = error_info(status) {
        let metadata = |key| info.metadata.get(key).cloned().unwrap_or_default();
        let (kind, field) = (metadata("kind"), metadata("field"));
        let message = format!("{}{}", status.message(), reports(status));
        let reason = info.reason;
        return match reason.as_str() {
            "SERVER_DRAINING" | "TOKEN_INVALID" => Failure::Unreachable(message),
            _ => Failure::Refused {
                reason,
                kind,
                field,
                message,
                retry: retry(status),
            },
        };
    }
    match status.code() {
        Code::Unavailable if never_connected(status) => Failure::Unreachable(format!(
            "{}. Check that nnpa-server listens there, ZDNN_SERVER, and TLS",
            explanation(status)
        )),
        Code::Unauthenticated | Code::Unimplemented => Failure::Unreachable(explanation(status)),
        Code::ResourceExhausted => Failure::Refused {
            reason: "MESSAGE_TOO_LARGE".to_owned(),
            kind: String::new(),
            field: String::new(),
            message: status.message().to_owned(),
            retry: None,
        },
        _ => Failure::Lost(explanation(status)),
    }
}
