// SPDX-License-Identifier: Apache-2.0
//! Sockets that never raise SIGPIPE in the host process, and how they are opened.

use std::future::Future;
use std::io;
use std::mem::MaybeUninit;
use std::net::ToSocketAddrs;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::pin::Pin;
use std::sync::atomic::{AtomicI32, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::Uri;
use hyper_util::rt::TokioIo;
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tower_service::Service;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// A connected socket. Its runtime is woken for writing only while a write waits: whenever the peer
/// reads, the buffer has room again, and a caller who waits for an answer would wake up for it.
pub struct Socket {
    readable: AsyncFd<OwnedFd>,
    /// While a write waits for room.
    writable: Option<AsyncFd<OwnedFd>>,
}

/// Descriptors of this process's sockets, -1 where there is none.
static OPEN: [AtomicI32; 8] = [const { AtomicI32::new(-1) }; 8];

extern "C" fn close_inherited() {
    for place in &OPEN {
        let descriptor = place.swap(-1, Ordering::Relaxed);
        if descriptor >= 0 {
            unsafe { libc::close(descriptor) };
        }
    }
}

/// Makes a forked child close its copies of the sockets, which it never uses, so that a lease ends
/// with the process that opened the connection.
pub fn register_fork_handler() {
    unsafe { libc::pthread_atfork(None, None, Some(close_inherited)) };
}

fn exchange(from: RawFd, to: RawFd) {
    let is_done = |place: &AtomicI32| {
        let exchanged = place.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed);
        exchanged.is_ok()
    };
    OPEN.iter().any(is_done);
}

impl Drop for Socket {
    fn drop(&mut self) {
        exchange(self.readable.as_raw_fd(), -1);
    }
}

/// Registers a descriptor with the connection's runtime.
fn watched(descriptor: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // An `OwnedFd` stays open, and the same, for as long as it is owned.
    Ok(unsafe { AsyncFd::register_with_interest(descriptor, interest) }?)
}

fn count(done: isize) -> io::Result<usize> {
    usize::try_from(done).map_err(|_| io::Error::last_os_error())
}

impl Socket {
    fn of(descriptor: OwnedFd) -> io::Result<Self> {
        exchange(-1, descriptor.as_raw_fd());
        Ok(Self {
            readable: watched(descriptor, Interest::READABLE)?,
            writable: None,
        })
    }

    fn receive(&self, bytes: &mut [MaybeUninit<u8>]) -> io::Result<usize> {
        let descriptor = self.readable.as_raw_fd();
        count(unsafe { libc::recv(descriptor, bytes.as_mut_ptr().cast(), bytes.len(), 0) })
    }

    fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        let (descriptor, flags) = (self.readable.as_raw_fd(), libc::MSG_NOSIGNAL);
        count(unsafe { libc::send(descriptor, bytes.as_ptr().cast(), bytes.len(), flags) })
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let mut ready = ready!(self.readable.poll_read_ready(context))?;
            let room = unsafe { buffer.unfilled_mut() }; // written to only
            let size = room.len();
            match self.receive(room) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => ready.clear_ready(),
                Err(error) => return Poll::Ready(Err(error)),
                Ok(count) => {
                    if 0 < count && count < size {
                        ready.clear_ready(); // all is read: the next bytes wake it
                    }
                    unsafe { buffer.assume_init(count) };
                    buffer.advance(count);
                    return Poll::Ready(Ok(()));
                }
            }
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            let ready = match &self.writable {
                Some(writable) => Some(ready!(writable.poll_write_ready(context))?),
                None => None,
            };
            match (self.send(bytes), ready) {
                (Err(error), ready) if error.kind() == io::ErrorKind::WouldBlock => match ready {
                    Some(mut ready) => ready.clear_ready(),
                    None => {
                        let descriptor = self.readable.get_ref().try_clone()?;
                        self.writable = Some(watched(descriptor, Interest::WRITABLE)?);
                    }
                },
                (done, _) => return Poll::Ready(done),
            }
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.writable = None; // all is written
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let done = unsafe { libc::shutdown(self.readable.as_raw_fd(), libc::SHUT_WR) };
        Poll::Ready(match done {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        })
    }
}

/// Opens sockets to one target, `host:port` or `unix:/path`. Names are resolved in the calling
/// thread: no other thread is ever started.
#[derive(Clone)]
pub struct Connector {
    pub target: String,
}

async fn open(target: String) -> io::Result<Socket> {
    if let Some(path) = target.strip_prefix("unix:") {
        let stream = UnixStream::connect(path).await?;
        return Socket::of(stream.into_std()?.into());
    }
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in target.to_socket_addrs()? {
        match TcpStream::connect(address).await {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Socket::of(stream.into_std()?.into());
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

impl Service<Uri> for Connector {
    type Response = TokioIo<Socket>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<TokioIo<Socket>>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let target = self.target.clone();
        Box::pin(async move {
            let opening = tokio::time::timeout(CONNECT_TIMEOUT, open(target));
            opening.await.map_err(io::Error::from)?.map(TokioIo::new)
        })
    }
}
