// SPDX-License-Identifier: Apache-2.0
//! Streamed transfers: sticks and arrays too large for a message go and come in chunks.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use crate::abi::memory::{byte_order, swap_to_little_endian};
use crate::rpc::channel::decoded;
use crate::rpc::failure::Failure;
use crate::rpc::frame::Frame;
use crate::rpc::session_channel::SessionChannel;
use crate::wire::operation::Operation as Arm;
use crate::wire::read_tensor_request::Source;
use crate::wire::read_tensor_response::Message as Part;
use crate::wire::tensor_ref::Tensor;
use crate::wire::write_tensor_header::Target;
use crate::wire::write_tensor_request::Message as Sent;
use crate::wire::{self, OperationResult, TensorRef};

const CHUNK_BYTES: usize = 1 << 20;

/// Addresses and sizes of the bytes to be sent. Emptied when the call is over, so that a body that
/// the connection still holds never reads the program's memory again.
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
    type Item = Frame;

    fn next(&mut self) -> Option<Frame> {
        let message = match self.header.take() {
            Some(header) => Sent::Header(header),
            None => Sent::Chunk(self.chunk()?),
        };
        let message = Some(message);
        Frame::of(&wire::WriteTensorRequest { message }).ok()
    }
}

fn write(
    server: &SessionChannel,
    target: Target,
    parts: &[&[u8]],
    width: usize,
) -> Result<OperationResult, Failure> {
    let parts = parts.iter();
    let places = parts.map(|part| (part.as_ptr() as usize, part.len()));
    let left: Left = Arc::new(Mutex::new(places.collect()));
    let header = wire::WriteTensorHeader {
        session: server.name.clone(),
        target: Some(target),
    };
    let messages = Messages {
        header: Some(header),
        left: Arc::clone(&left),
        width,
    };
    let answer = server.connection.send_stream("WriteTensor", messages);
    left.lock().unwrap_or_else(PoisonError::into_inner).clear();
    let answer: wire::WriteTensorResponse = decoded(answer?)?;
    let missing = || Failure::Lost("the answer has no result".to_owned());
    answer.result.ok_or_else(missing)
}

/// Returns an id that no tensor of this process has had.
pub fn new_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Returns the operation that frees a tensor of the session.
pub fn free(id: u64) -> wire::Operation {
    let ztensor = Some(TensorRef {
        tensor: Some(Tensor::Id(id)),
        ..TensorRef::default()
    });
    wire::Operation {
        operation: Some(Arm::FreeZtensorBuffer(wire::FreeZtensorBuffer { ztensor })),
        housekeeping: true,
        ..wire::Operation::default()
    }
}

/// Creates a tensor of the session from a structure and its sticks; of zeros if there are none.
pub fn write_sticks(
    server: &SessionChannel,
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
    write(server, target, &[sticks], 1).map(|_| ())
}

/// Runs a transform of a tensor of the session on arrays of the program.
pub fn write_arrays(
    server: &SessionChannel,
    operation: wire::Operation,
    arrays: &[&[u8]],
    width: usize,
) -> Result<OperationResult, Failure> {
    let array_bytes = arrays.iter().map(|array| array.len() as u64).collect();
    let target = Target::Arrays(wire::WriteArrays {
        operation: Some(operation),
        array_bytes,
    });
    write(server, target, arrays, width)
}

/// Copies the chunks of a source to memory of the program; returns the result in the header.
unsafe fn read(
    server: &SessionChannel,
    source: Source,
    target: *mut c_void,
    size: u64,
    width: usize,
) -> Result<OperationResult, Failure> {
    let request = wire::ReadTensorRequest {
        session: server.name.clone(),
        source: Some(source),
    };
    let (target, size) = (target.cast::<u8>(), usize::try_from(size).unwrap_or(0));
    let mut result = None;
    let mut at = 0;
    let receive = |part: Bytes| {
        match decoded::<wire::ReadTensorResponse>(part)?.message {
            Some(Part::Header(header)) => result = header.result,
            Some(Part::Chunk(chunk)) => {
                if at + chunk.len() > size {
                    return Err(Failure::Lost("more bytes than asked for".to_owned()));
                }
                let address = unsafe { target.add(at) };
                unsafe { address.copy_from_nonoverlapping(chunk.as_ptr(), chunk.len()) };
                at += chunk.len();
            }
            None => {}
        }
        Ok(())
    };
    let (request, connection) = (Frame::of(&request)?, &server.connection);
    connection.receive_stream("ReadTensor", &request, receive)?;
    let written = unsafe { std::slice::from_raw_parts_mut(target, at) };
    swap_to_little_endian(written, width);
    result.ok_or_else(|| Failure::Lost("the answer has no header".to_owned()))
}

/// Copies the sticks of a tensor of the session into a buffer; the server's cache keeps them as
/// `cache_as`, unless it is empty.
pub unsafe fn read_sticks(
    server: &SessionChannel,
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
    unsafe { read(server, source, buffer, size, 1) }.map(|_| ())
}

/// Runs zdnn_transform_origtensor on a tensor of the session, into an array of the program.
pub unsafe fn read_array(
    server: &SessionChannel,
    operation: wire::Operation,
    array: *mut c_void,
    size: u64,
    width: usize,
) -> Result<OperationResult, Failure> {
    unsafe { read(server, Source::Operation(operation), array, size, width) }
}
