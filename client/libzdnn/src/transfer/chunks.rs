// SPDX-License-Identifier: Apache-2.0
//! Memory too large for a message: it goes in chunks, and comes back in them.

use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use prost::Message;

use crate::call::operand::byte_order;
use crate::call::session::Session;
use crate::rpc::failure::Failure;
use crate::wire::read_tensor_request::Source;
use crate::wire::read_tensor_response::Message as Part;
use crate::wire::write_tensor_header::Target;
use crate::wire::write_tensor_request::Message as Sent;
use crate::wire::{self, OperationResult};

const CHUNK_BYTES: usize = 1 << 20;

/// Views memory of the program.
///
/// # Safety
/// It is valid for that many bytes while the view lives.
pub unsafe fn memory<'a>(address: *const c_void, size: u64) -> &'a [u8] {
    let size = usize::try_from(size).unwrap_or(0);
    unsafe { std::slice::from_raw_parts(address.cast(), size) }
}

/// Views memory of the program as part of a message.
///
/// # Safety
/// As `memory`, until the message and what was split off it are gone: messages are copied when
/// they are sent, and none is kept beyond its call.
pub unsafe fn lent(bytes: &[u8]) -> Bytes {
    let (address, size) = (bytes.as_ptr(), bytes.len());
    Bytes::from_static(unsafe { std::slice::from_raw_parts(address, size) })
}

/// Reverses the bytes of every element of `width` bytes on a big-endian host: user arrays travel
/// little-endian.
pub fn swap_to_little_endian(bytes: &mut [u8], width: usize) {
    if cfg!(target_endian = "big") && width > 1 {
        bytes.chunks_exact_mut(width).for_each(<[u8]>::reverse);
    }
}

/// What is left to send: addresses and sizes. Emptied when the call is over, so that a body that
/// the connection still holds never looks at the program's memory again.
type Left = Arc<Mutex<Vec<(usize, usize)>>>;

struct Messages {
    header: Option<wire::WriteTensorHeader>,
    left: Left,
    width: usize,
}

impl Messages {
    fn chunk(&mut self) -> Option<Bytes> {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        left.retain(|(_, size)| *size != 0);
        let (address, size) = left.first_mut()?;
        let count = CHUNK_BYTES.min(*size);
        let mut chunk =
            unsafe { std::slice::from_raw_parts(*address as *const u8, count) }.to_vec();
        *address += count;
        *size -= count;
        swap_to_little_endian(&mut chunk, self.width);
        Some(chunk.into())
    }
}

impl Iterator for Messages {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        let message = match self.header.take() {
            Some(header) => Sent::Header(header),
            None => Sent::Chunk(self.chunk()?),
        };
        Some(
            wire::WriteTensorRequest {
                message: Some(message),
            }
            .encode_to_vec()
            .into(),
        )
    }
}

fn write(
    session: &Session,
    target: Target,
    parts: &[&[u8]],
    width: usize,
) -> Result<OperationResult, Failure> {
    let places = parts
        .iter()
        .map(|part| (part.as_ptr() as usize, part.len()))
        .collect();
    let left: Left = Arc::new(Mutex::new(places));
    let header = wire::WriteTensorHeader {
        session: session.name.clone(),
        target: Some(target),
    };
    let messages = Messages {
        header: Some(header),
        left: Arc::clone(&left),
        width,
    };
    let stream = tokio_stream::iter(messages);
    let answer: Result<wire::WriteTensorResponse, Failure> =
        session.link.upload("WriteTensor", stream);
    left.lock().unwrap_or_else(PoisonError::into_inner).clear();
    answer?
        .result
        .ok_or_else(|| Failure::Lost("the answer has no result".to_owned()))
}

/// Creates a tensor of the session from a structure and its sticks; none: zeros.
pub fn write_sticks(
    session: &Session,
    id: u64,
    structure: wire::Ztensor,
    sticks: &[u8],
) -> Result<(), Failure> {
    let target = Target::Sticks(wire::WriteSticks {
        id,
        new_ztensor: Some(structure),
        total_bytes: sticks.len() as u64,
        byte_order: byte_order(),
        ..wire::WriteSticks::default()
    });
    write(session, target, &[sticks], 1).map(|_| ())
}

/// Runs a transform of a tensor of the session on arrays of the program.
pub fn write_arrays(
    session: &Session,
    operation: wire::Operation,
    arrays: &[&[u8]],
    width: usize,
) -> Result<OperationResult, Failure> {
    let array_bytes = arrays.iter().map(|array| array.len() as u64).collect();
    let target = Target::Arrays(wire::WriteArrays {
        operation: Some(operation),
        array_bytes,
    });
    write(session, target, arrays, width)
}

/// Copies what a source has into memory of the program; returns what the header says.
///
/// # Safety
/// The memory is valid for `size` bytes.
unsafe fn read(
    session: &Session,
    source: Source,
    target: *mut c_void,
    size: u64,
    width: usize,
) -> Result<OperationResult, Failure> {
    let request = wire::ReadTensorRequest {
        session: session.name.clone(),
        source: Some(source),
    };
    let mut result = None;
    let mut at = 0;
    session
        .link
        .download("ReadTensor", &request, |part: wire::ReadTensorResponse| {
            match part.message {
                Some(Part::Header(header)) => result = header.result,
                Some(Part::Chunk(chunk)) => {
                    if at + chunk.len() as u64 > size {
                        return Err(Failure::Lost("more bytes than asked for".to_owned()));
                    }
                    let place = target
                        .cast::<u8>()
                        .wrapping_add(usize::try_from(at).unwrap_or(0));
                    unsafe { place.copy_from_nonoverlapping(chunk.as_ptr(), chunk.len()) };
                    at += chunk.len() as u64;
                }
                None => {}
            }
            Ok(())
        })?;
    let written = usize::try_from(at).unwrap_or(0);
    let bytes = unsafe { std::slice::from_raw_parts_mut(target.cast::<u8>(), written) };
    swap_to_little_endian(bytes, width);
    result.ok_or_else(|| Failure::Lost("the answer has no header".to_owned()))
}

/// Copies the sticks of a tensor of the session into a buffer; `cache_as`, unless it is empty, is
/// what the server's cache calls them from then on.
///
/// # Safety
/// The buffer is valid for `size` bytes.
pub unsafe fn read_sticks(
    session: &Session,
    id: u64,
    cache_as: Bytes,
    buffer: *mut c_void,
    size: u64,
) -> Result<(), Failure> {
    let source = Source::Sticks(wire::ReadSticks {
        id,
        byte_order: byte_order(),
        cache_as,
    });
    unsafe { read(session, source, buffer, size, 1) }.map(|_| ())
}

/// Runs zdnn_transform_origtensor on a tensor of the session, into an array of the program.
///
/// # Safety
/// The array is valid for `size` bytes.
pub unsafe fn read_array(
    session: &Session,
    operation: wire::Operation,
    array: *mut c_void,
    size: u64,
    width: usize,
) -> Result<OperationResult, Failure> {
    unsafe { read(session, Source::Operation(operation), array, size, width) }
}
