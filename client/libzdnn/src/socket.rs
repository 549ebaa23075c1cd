// SPDX-License-Identifier: Apache-2.0
//! Sockets that never raise SIGPIPE in the host process, and how they are opened.

use std::future::Future;
use std::io;
use std::net::ToSocketAddrs;
use std::os::fd::{AsRawFd, RawFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::Uri;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tower_service::Service;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// A connected socket.
pub enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

fn send(descriptor: RawFd, bytes: &[u8]) -> io::Result<usize> {
    let flags = libc::MSG_NOSIGNAL;
    let sent = unsafe { libc::send(descriptor, bytes.as_ptr().cast(), bytes.len(), flags) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

impl Socket {
    fn poll_writable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(one) => one.poll_write_ready(context),
            Self::Unix(one) => one.poll_write_ready(context),
        }
    }

    fn try_send(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(one) => one.try_io(Interest::WRITABLE, || send(one.as_raw_fd(), bytes)),
            Self::Unix(one) => one.try_io(Interest::WRITABLE, || send(one.as_raw_fd(), bytes)),
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(one) => Pin::new(one).poll_read(context, buffer),
            Self::Unix(one) => Pin::new(one).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.poll_writable(context))?;
            match self.try_send(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return Poll::Ready(done),
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(one) => Pin::new(one).poll_shutdown(context),
            Self::Unix(one) => Pin::new(one).poll_shutdown(context),
        }
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
        return Ok(Socket::Unix(UnixStream::connect(path).await?));
    }
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in target.to_socket_addrs()? {
        match TcpStream::connect(address).await {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(Socket::Tcp(stream));
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
