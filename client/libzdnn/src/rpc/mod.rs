// SPDX-License-Identifier: Apache-2.0
//! Calls to a server.

pub mod connection;
pub mod failure;
pub mod frame;
pub mod http2;
pub mod plain_socket;
pub mod socket;
pub mod stream;
