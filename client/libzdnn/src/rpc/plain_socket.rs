// SPDX-License-Identifier: Apache-2.0
//! The shortcut `plain-socket`: the stream of operations on the socket beside a Unix socket of gRPC,
//! without HTTP/2, written and read by the calling thread. Sources: deploy/docs/wire.md, "Plain
//! sockets"; gRPC over HTTP2, "Length-Prefixed-Message"; gRPC-Web, doc/PROTOCOL-WEB.md, "Message
//! framing".

use std::fs::File;
use std::io::{self, IoSlice, Read};
use std::mem::zeroed;
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use tonic::Status;

use crate::rpc::connection::Connection;
use crate::rpc::failure::{Failure, status_in};
use crate::rpc::frame::{Frame, PREFIX_BYTES};
use crate::rpc::pool::{KEPT_BYTES, Pool};
use crate::rpc::stream::{RequestStream, StreamOpener, ended};

/// The flag of a frame that is no message.
const METADATA: u8 = 0x80;
/// Bytes of the socket's buffer, which one side can write while the other does not read.
static BUFFER_BYTES: libc::c_int = 1 << 20;

/// Parts that one system call takes, fewer than IOV_MAX.
const MAX_PARTS: usize = 64;

/// One call: messages are sent and received until either side ends it.
struct PlainSocket {
    stream: UnixStream,
    connection: Arc<Connection>,
}

fn lost(error: &io::Error) -> Status {
    Status::unavailable(format!("connection lost: {error}"))
}

/// Parses the metadata of the last frame.
fn read_metadata(lines: &[u8]) -> HeaderMap {
    let pairs = lines.split(|byte| *byte == b'\n').filter_map(|line| {
        let colon = line.iter().position(|byte| *byte == b':')?;
        let name = HeaderName::from_bytes(&line[..colon]).ok()?;
        let value = HeaderValue::from_bytes(line[colon + 1..].trim_ascii()).ok()?;
        Some((name, value))
    });
    pairs.collect()
}

/// Repeats a system call for as long as a signal interrupts it.
fn uninterrupted(mut call: impl FnMut() -> libc::ssize_t) -> io::Result<usize> {
    loop {
        if let Ok(count) = usize::try_from(call()) {
            return Ok(count);
        }
        match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::Interrupted => {}
            error => return Err(error),
        }
    }
}

impl PlainSocket {
    /// Connects, sends the metadata of a call, with a descriptor of memory if there is one, and its
    /// first message. Does not wait for a server that accepts no clients now.
    fn open(
        path: &Path,
        connection: &Arc<Connection>,
        first: &Frame,
        memory: Option<&File>,
    ) -> io::Result<Self> {
        let stream = connection.drive(tokio::net::UnixStream::connect(path))?;
        let mut socket = Self {
            stream: stream.into_std()?,
            connection: Arc::clone(connection),
        };
        socket.stream.set_nonblocking(false)?;
        socket.enlarge_buffers();
        let mut lines = Vec::new();
        if let Some(token) = connection.token() {
            lines = [b"authorization: ", token.as_bytes(), b"\r\n"].concat();
        }
        let size = u32::try_from(lines.len()).map_err(io::Error::other)?;
        let mut frame = vec![METADATA];
        frame.extend(size.to_be_bytes());
        frame.extend(lines);
        match memory {
            Some(memory) => socket.send_with(&frame, memory)?,
            None => socket.send_all(&mut [IoSlice::new(&frame)])?,
        }
        if socket.send_all(&mut first.slices()).is_err() {
            socket.finish(); // the answer tells why: the server waits for no more
        }
        Ok(socket)
    }

    /// Asks for large buffers; smaller ones are slower and no error.
    fn enlarge_buffers(&self) {
        for option in [libc::SO_SNDBUF, libc::SO_RCVBUF] {
            let value = (&raw const BUFFER_BYTES).cast();
            let size = size_of_val(&BUFFER_BYTES).try_into().unwrap_or(0);
            let socket = self.stream.as_raw_fd();
            unsafe { libc::setsockopt(socket, libc::SOL_SOCKET, option, value, size) };
        }
    }

    /// Sends a small frame with a descriptor. Source: unix(7), SCM_RIGHTS.
    fn send_with(&self, frame: &[u8], file: &File) -> io::Result<()> {
        #[repr(align(8))]
        struct Control([u8; 64]); // room for a header and one descriptor
        let descriptor = file.as_raw_fd();
        let size = size_of_val(&descriptor) as u32;
        let mut control = Control([0; 64]);
        let mut parts = [IoSlice::new(frame)];
        let count = unsafe {
            let mut message: libc::msghdr = zeroed();
            message.msg_iov = parts.as_mut_ptr().cast();
            message.msg_iovlen = 1;
            message.msg_control = control.0.as_mut_ptr().cast();
            message.msg_controllen = libc::CMSG_SPACE(size) as _;
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(size) as _;
            libc::CMSG_DATA(header)
                .cast::<libc::c_int>()
                .write_unaligned(descriptor);
            let socket = self.stream.as_raw_fd();
            uninterrupted(|| libc::sendmsg(socket, &raw const message, libc::MSG_NOSIGNAL))?
        };
        self.send_all(&mut [IoSlice::new(&frame[count..])])
    }

    /// Sends all parts. SIGPIPE is never raised in the host process.
    fn send_all(&self, parts: &mut [IoSlice<'_>]) -> io::Result<()> {
        let mut left = parts;
        IoSlice::advance_slices(&mut left, 0); // so that no empty one is first
        while !left.is_empty() {
            let mut message: libc::msghdr = unsafe { zeroed() };
            message.msg_iov = left.as_mut_ptr().cast(); // an `IoSlice` is an iovec
            message.msg_iovlen = left.len().min(MAX_PARTS);
            let (socket, flags) = (self.stream.as_raw_fd(), libc::MSG_NOSIGNAL);
            let count =
                uninterrupted(|| unsafe { libc::sendmsg(socket, &raw const message, flags) })?;
            IoSlice::advance_slices(&mut left, count);
        }
        Ok(())
    }

    /// Waits for the next message; None if the call has ended with status OK.
    fn next(&mut self) -> Result<Option<Bytes>, Status> {
        let connection = Arc::clone(&self.connection);
        let pool = connection.pool();
        let mut prefix = [0; PREFIX_BYTES];
        let read = self.stream.read_exact(&mut prefix);
        read.map_err(|error| lost(&error))?;
        let [flag, size @ ..] = prefix;
        let size = u32::from_be_bytes(size) as usize;
        let memory = self.read(pool, size).map_err(|error| lost(&error))?;
        match flag {
            0 => Ok(Some(pool.lend(memory))),
            METADATA => match status_in(&read_metadata(&memory)) {
                Some(status) => status.map(|()| None),
                None => Err(Status::internal("the answer ends without a status")),
            },
            _ => Err(Status::internal("the answer is not one plain message")),
        }
    }

    fn read(&mut self, pool: &Pool, size: usize) -> io::Result<Vec<u8>> {
        let mut memory = pool.take(size.min(KEPT_BYTES));
        while memory.len() < size {
            memory.reserve((size - memory.len()).min(KEPT_BYTES));
            let left = size - memory.len();
            let room = memory.spare_capacity_mut();
            let (address, count) = (room.as_mut_ptr().cast(), room.len().min(left));
            let (socket, flags) = (self.stream.as_raw_fd(), libc::MSG_WAITALL);
            match uninterrupted(|| unsafe { libc::recv(socket, address, count, flags) })? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => unsafe { memory.set_len(memory.len() + count) },
            }
        }
        Ok(memory)
    }

    /// Returns, without waiting, whether neither data nor the end has arrived since the last
    /// message.
    fn is_quiet(&self) -> bool {
        let mut byte = 0_u8;
        let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
        let address = (&raw mut byte).cast();
        let got = unsafe { libc::recv(self.stream.as_raw_fd(), address, 1, flags) };
        got < 0 && io::Error::last_os_error().kind() == io::ErrorKind::WouldBlock
    }
}

/// Opens streams on a plain socket, or with the wrapped opener once the socket cannot be reached.
pub struct PlainSocketStreams {
    path: PathBuf,
    connection: Arc<Connection>,
    inner: Box<dyn StreamOpener>,
    is_reachable: AtomicBool,
}

impl PlainSocketStreams {
    /// Wraps an opener.
    pub fn new(path: PathBuf, connection: Arc<Connection>, inner: Box<dyn StreamOpener>) -> Self {
        Self {
            path,
            connection,
            inner,
            is_reachable: AtomicBool::new(true),
        }
    }
}

impl StreamOpener for PlainSocketStreams {
    fn open(&self, first: &Frame) -> Result<Box<dyn RequestStream>, Failure> {
        if !self.is_reachable.load(Ordering::Relaxed) {
            return self.inner.open(first);
        }
        let Ok(socket) = PlainSocket::open(&self.path, &self.connection, first, None) else {
            self.is_reachable.store(false, Ordering::Relaxed);
            return self.inner.open(first);
        };
        Ok(Box::new(socket))
    }
}

/// Opens a stream whose first request brings memory to the session that it names.
pub fn open_with_memory(
    path: &Path,
    connection: &Arc<Connection>,
    first: &Frame,
    memory: &File,
) -> Result<Box<dyn RequestStream>, Failure> {
    let socket = PlainSocket::open(path, connection, first, Some(memory));
    let mut socket = socket.map_err(|error| lost(&error))?;
    socket.receive()?;
    Ok(Box::new(socket))
}

impl RequestStream for PlainSocket {
    fn send(&mut self, request: &Frame) -> bool {
        self.is_quiet() && self.send_all(&mut request.slices()).is_ok()
    }

    fn receive(&mut self) -> Result<Bytes, Failure> {
        self.next()?.ok_or_else(ended)
    }

    fn finish(&mut self) {
        drop(self.stream.shutdown(Shutdown::Write));
    }

    fn wait_for_end(&mut self, deadline: Instant) {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = left.max(Duration::from_millis(1));
        drop(self.stream.set_read_timeout(Some(timeout)));
        drop(self.next());
    }
}
