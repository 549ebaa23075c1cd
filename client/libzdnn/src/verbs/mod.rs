// SPDX-License-Identifier: Apache-2.0
//! The exported functions.

pub mod layer;
pub mod life;
pub mod limits;
pub mod matrix;
pub mod query;
pub mod transform;
pub mod window;
