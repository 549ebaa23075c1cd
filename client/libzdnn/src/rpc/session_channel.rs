// SPDX-License-Identifier: Apache-2.0
//! Calls of one session.

use std::sync::Arc;

use crate::rpc::channel::{Channel, unary};
use crate::rpc::connection::Connection;
use crate::rpc::failure::Failure;
use crate::wire;

/// A session of the server, and the channels to it.
#[derive(Clone)]
pub struct SessionChannel {
    pub name: String,
    pub limits: wire::SessionLimits,
    /// The connection, for calls that stream.
    pub connection: Arc<Connection>,
    pub channel: Arc<dyn Channel>,
    /// The channel of operations: the same, or the connection if faults are injected, because a
    /// fault ends the call that it meets.
    pub operations: Arc<dyn Channel>,
}

impl SessionChannel {
    /// Runs one operation.
    pub fn execute(&self, operation: wire::Operation) -> Result<wire::OperationResult, Failure> {
        let missing = || Failure::Lost("the answer has no result".to_owned());
        let results = self.execute_all(vec![operation])?;
        results.into_iter().next().ok_or_else(missing)
    }

    /// Runs operations in order, as far as they succeed.
    pub fn execute_all(
        &self,
        operations: Vec<wire::Operation>,
    ) -> Result<Vec<wire::OperationResult>, Failure> {
        let request = wire::ExecuteRequest {
            session: self.name.clone(),
            operations,
        };
        let answer: wire::ExecuteResponse = unary(&*self.operations, "Execute", &request)?;
        Ok(answer.results)
    }
}
