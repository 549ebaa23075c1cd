// SPDX-License-Identifier: Apache-2.0
//! Calls to a server: the channel, HTTP/2 below it, and the shortcuts that wrap it.

pub mod channel;
pub mod connection;
pub mod failure;
pub mod frame;
pub mod http2;
pub mod plain_socket;
pub mod pool;
pub mod session_channel;
pub mod socket;
pub mod stream;
