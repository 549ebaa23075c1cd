// SPDX-License-Identifier: Apache-2.0
//! The exported functions.

pub mod descriptor;
pub mod life;
pub mod limits;
pub mod operation;
pub mod query;
pub mod transform;
