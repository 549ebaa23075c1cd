// SPDX-License-Identifier: Apache-2.0
//! Weights of a program, which travel only if they differ from the model's.
//! Source: X-CUBE-AI 7.0 Embedded Inference Client API, "Split weights buffer".

use bytes::Bytes;
use ring::digest::{Context, SHA256};

use crate::network::ai::{Buffer, Model};
use crate::network::wire;

/// Views memory of the program; nothing behind NULL.
///
/// # Safety
/// It is valid for that many bytes while the view lives.
pub unsafe fn view<'a>(address: *const u8, size: usize) -> &'a [u8] {
    if address.is_null() {
        return &[];
    }
    unsafe { std::slice::from_raw_parts(address, size) }
}

/// Returns the pieces of the weights: one blob, or the entries of a table.
unsafe fn pieces<'a>(model: &Model, weights: &Buffer) -> Vec<&'a [u8]> {
    let blob = weights.data.cast::<u8>().cast_const();
    if model.n_pieces == 0 {
        return vec![unsafe { view(blob, weights.channels as usize) }];
    }
    let count = model.n_pieces as usize;
    let table = unsafe { std::slice::from_raw_parts(blob.cast::<*const u8>(), count) };
    let sizes = unsafe { std::slice::from_raw_parts(model.piece_sizes, count) };
    let sized = table.iter().zip(sizes);
    let pieces = sized.map(|(piece, size)| unsafe { view(*piece, *size as usize) });
    pieces.collect()
}

/// Returns the message of weights: without contents if the model was generated with the same
/// weights.
pub unsafe fn weights_message(model: &Model, weights: &Buffer) -> wire::Buffer {
    let mut message = weights.message();
    if weights.data.is_null() || weights.channels < model.weights_size {
        message.data = (!weights.data.is_null()).then(Bytes::new);
        return message;
    }
    let pieces = unsafe { pieces(model, weights) };
    let mut hash = Context::new(&SHA256);
    if model.n_pieces == 0 {
        hash.update(&pieces[0][..model.weights_size as usize]);
    } else {
        pieces.iter().for_each(|piece| hash.update(piece));
    }
    if hash.finish().as_ref() == unsafe { view(model.weights_sha256, 32) } {
        (message.height, message.width, message.channels) = (0, 0, 0);
    } else if model.n_pieces == 0 {
        message.data = Some(Bytes::copy_from_slice(pieces[0]));
    } else {
        let copies = pieces.into_iter().map(Bytes::copy_from_slice);
        message.parts = copies.collect();
    }
    message
}
