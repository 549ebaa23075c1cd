// SPDX-License-Identifier: Apache-2.0
//! The plain socket beside a Unix socket of gRPC: the messages of one call without HTTP/2, written
//! and read by the calling thread. Sources: protos/README.md, "Plain sockets"; gRPC over HTTP2,
//! "Length-Prefixed-Message"; gRPC-Web, doc/PROTOCOL-WEB.md, "Message framing".

use std::fs::File;
use std::io::{self, IoSlice, Read};
use std::mem::zeroed;
use std::net::Shutdown;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use tonic::Status;

use crate::rpc::http2::{KEPT_BYTES, PREFIX_BYTES, Pool, told};

/// The flag of a frame that is no message.
const METADATA: u8 = 0x80;
/// Bytes of the socket's buffer: what one side writes while the other does not read.
static BUFFER_BYTES: libc::c_int = 1 << 20;

/// Pieces that one system call takes, fewer than IOV_MAX.
const MOST_PIECES: usize = 64;

/// One call: messages go and come until either side ends it.
pub struct PlainSocket(UnixStream);

fn lost(error: &io::Error) -> Status {
    Status::unavailable(format!("connection lost: {error}"))
}

/// Returns what the last frame says.
fn read_metadata(lines: &[u8]) -> HeaderMap {
    let pairs = lines.split(|byte| *byte == b'\n').filter_map(|line| {
        let colon = line.iter().position(|byte| *byte == b':')?;
        let name = HeaderName::from_bytes(&line[..colon]).ok()?;
        let value = HeaderValue::from_bytes(line[colon + 1..].trim_ascii()).ok()?;
        Some((name, value))
    });
    pairs.collect()
}

/// Connects if the server takes clients now: one that has stopped doing so is not waited for.
fn connected(path: &Path) -> io::Result<UnixStream> {
    let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    let socket = unsafe { libc::socket(libc::AF_UNIX, kind, 0) };
    if socket < 0 {
        return Err(io::Error::last_os_error());
    }
    let stream = unsafe { UnixStream::from_raw_fd(socket) };
    let mut address: libc::sockaddr_un = unsafe { zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let name = path.as_os_str().as_bytes();
    if name.len() >= address.sun_path.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (place, byte) in address.sun_path.iter_mut().zip(name) {
        *place = (*byte).cast_signed() as libc::c_char;
    }
    let size = size_of_val(&address) as libc::socklen_t;
    if unsafe { libc::connect(socket, (&raw const address).cast(), size) } != 0 {
        return Err(io::Error::last_os_error());
    }
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// Makes a system call again for as long as a signal cuts it off.
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
    /// Connects, and sends the metadata of a call; with a descriptor of memory, if there is one.
    pub fn open(
        path: &Path,
        token: Option<&HeaderValue>,
        memory: Option<&File>,
    ) -> io::Result<Self> {
        let stream = connected(path)?;
        for option in [libc::SO_SNDBUF, libc::SO_RCVBUF] {
            let value = (&raw const BUFFER_BYTES).cast();
            let size = size_of_val(&BUFFER_BYTES).try_into().unwrap_or(0);
            // Less than wanted is slower and no error.
            unsafe {
                libc::setsockopt(stream.as_raw_fd(), libc::SOL_SOCKET, option, value, size);
            }
        }
        let socket = Self(stream);
        let mut lines = Vec::new();
        if let Some(token) = token {
            lines = [b"authorization: ", token.as_bytes(), b"\r\n"].concat();
        }
        let size = u32::try_from(lines.len()).map_err(io::Error::other)?;
        let mut frame = vec![METADATA];
        frame.extend(size.to_be_bytes());
        frame.extend(lines);
        match memory {
            Some(memory) => socket.send_with(&frame, memory)?,
            None => socket.send(&mut [IoSlice::new(&frame)])?,
        }
        Ok(socket)
    }

    /// Sends a small frame with a descriptor. Source: unix(7), SCM_RIGHTS.
    fn send_with(&self, frame: &[u8], file: &File) -> io::Result<()> {
        #[repr(align(8))]
        struct Control([u8; 64]); // room for a header and one descriptor
        let descriptor = file.as_raw_fd();
        let size = size_of_val(&descriptor) as u32;
        let mut control = Control([0; 64]);
        let mut pieces = [IoSlice::new(frame)];
        let count = unsafe {
            let mut message: libc::msghdr = zeroed();
            message.msg_iov = pieces.as_mut_ptr().cast();
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
            let socket = self.0.as_raw_fd();
            uninterrupted(|| libc::sendmsg(socket, &raw const message, libc::MSG_NOSIGNAL))?
        };
        self.send(&mut [IoSlice::new(&frame[count..])])
    }

    /// Sends all of some pieces. SIGPIPE is never raised in the host process.
    pub fn send(&self, pieces: &mut [IoSlice<'_>]) -> io::Result<()> {
        let mut left = pieces;
        IoSlice::advance_slices(&mut left, 0); // so that no empty one is first
        while !left.is_empty() {
            let mut message: libc::msghdr = unsafe { zeroed() };
            message.msg_iov = left.as_mut_ptr().cast(); // an `IoSlice` is an iovec
            message.msg_iovlen = left.len().min(MOST_PIECES);
            let (socket, flags) = (self.0.as_raw_fd(), libc::MSG_NOSIGNAL);
            let count =
                uninterrupted(|| unsafe { libc::sendmsg(socket, &raw const message, flags) })?;
            IoSlice::advance_slices(&mut left, count);
        }
        Ok(())
    }

    /// Sends the first message. What hinders it, the answer tells: the server waits for no more.
    pub fn send_or_finish(&self, pieces: &mut [IoSlice<'_>]) {
        if self.send(pieces).is_err() {
            self.finish();
        }
    }

    /// Waits for the next message; none when the server says that all is well, and no more.
    pub fn next(&mut self, pool: &Pool) -> Result<Option<Bytes>, Status> {
        let mut prefix = [0; PREFIX_BYTES];
        self.0
            .read_exact(&mut prefix)
            .map_err(|error| lost(&error))?;
        let [flag, size @ ..] = prefix;
        let size = u32::from_be_bytes(size) as usize;
        let memory = self.read(pool, size).map_err(|error| lost(&error))?;
        match flag {
            0 => Ok(Some(pool.lend(memory))),
            METADATA => match told(&read_metadata(&memory)) {
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
            let (address, wanted) = (room.as_mut_ptr().cast(), room.len().min(left));
            let (socket, flags) = (self.0.as_raw_fd(), libc::MSG_WAITALL);
            match uninterrupted(|| unsafe { libc::recv(socket, address, wanted, flags) })? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => unsafe { memory.set_len(memory.len() + count) },
            }
        }
        Ok(memory)
    }

    /// Tells, without waiting, whether nothing has come since the last message: no end either.
    pub fn is_quiet(&self) -> bool {
        let mut byte = 0_u8;
        let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
        let address = (&raw mut byte).cast();
        let got = unsafe { libc::recv(self.0.as_raw_fd(), address, 1, flags) };
        got < 0 && io::Error::last_os_error().kind() == io::ErrorKind::WouldBlock
    }

    /// Tells the server that there are no more messages.
    pub fn finish(&self) {
        drop(self.0.shutdown(Shutdown::Write));
    }

    /// Waits, not for long, until the server has said its last.
    pub fn wait_for_end(mut self, pool: &Pool, patience: Duration) {
        drop(self.0.set_read_timeout(Some(patience)));
        drop(self.next(pool));
    }
}
