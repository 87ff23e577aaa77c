//! The socket of a connection as the protocol sees it: what cannot be done at once is pending, and the loop tries again when epoll says so.

use std::cell::RefCell;
use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use kelvin_sys::clock::monotonic;
use kelvin_sys::net::rx_timestamp::TimedRead;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::load::transport::HttpTransport;

/// Bytes that one call reads: the protocol has a buffer of about as many for each connection.
const MAX_READ_BYTES: usize = 64 << 10;

/// What came of the reading that was allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ReadOutcome {
    /// The protocol did not ask.
    #[default]
    Untried,
    /// There was nothing.
    Empty,
    /// Bytes, or the end of the connection.
    Read {
        read: TimedRead,
        /// When they were taken.
        time: u64,
        /// Whether there may be more.
        may_have_more: bool,
    },
}

/// What the pool and the protocol share of a connection.
#[derive(Debug)]
pub(super) struct SocketState {
    pub(super) transport: HttpTransport,
    /// Whether one read may be done, and whether it may take from the socket.
    allowed_read: Option<bool>,
    outcome: ReadOutcome,
    /// Whether bytes were written since this was last unset.
    pub(super) has_written: bool,
    /// Whether the socket took less than it was given.
    is_blocked: bool,
}

/// One end of it: the pool has one, the protocol the other.
#[derive(Clone, Debug)]
pub(super) struct SharedSocket(Rc<RefCell<SocketState>>);

impl SharedSocket {
    pub(super) fn new(transport: HttpTransport) -> Self {
        let (outcome, is_blocked) = (ReadOutcome::Untried, false);
        Self(Rc::new(RefCell::new(SocketState {
            transport,
            allowed_read: None,
            outcome,
            has_written: false,
            is_blocked,
        })))
    }

    /// What is done with the state, by nobody else meanwhile.
    pub(super) fn with<T>(&self, work: impl FnOnce(&mut SocketState) -> T) -> T {
        work(&mut self.0.borrow_mut())
    }

    /// Allows one read, from the socket or only of what TLS has decrypted; or none.
    pub(super) fn allow_read(&self, may_take: Option<bool>) {
        self.with(|state| (state.allowed_read, state.outcome) = (may_take, ReadOutcome::Untried));
    }

    /// What came of it.
    pub(super) fn outcome(&self) -> ReadOutcome {
        self.0.borrow().outcome
    }

    /// Whether something is to be sent that the socket did not take.
    pub(super) fn wants_write(&self) -> bool {
        let state = self.0.borrow();
        state.is_blocked || state.transport.session.as_ref().is_some_and(|session| session.wants_write())
    }
}

impl AsyncRead for SharedSocket {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let state = &mut *self.0.borrow_mut();
        let Some(may_take) = state.allowed_read.take() else { return Poll::Pending };
        let length = buffer.remaining().min(MAX_READ_BYTES);
        let result = state.transport.read(buffer.initialize_unfilled_to(length), may_take);
        match result {
            Ok(read) => {
                // A plain socket that did not fill the buffer has no more.
                let may_have_more = read.length == length || state.transport.session.is_some();
                state.outcome = ReadOutcome::Read { read, time: monotonic(), may_have_more };
                buffer.advance(read.length);
                Poll::Ready(Ok(()))
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                state.outcome = ReadOutcome::Empty;
                Poll::Pending
            }
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}

impl AsyncWrite for SharedSocket {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let state = &mut *self.0.borrow_mut();
        let length = state.transport.write(bytes)?;
        state.is_blocked = length == 0 && !bytes.is_empty();
        state.has_written |= length > 0;
        if state.is_blocked { Poll::Pending } else { Poll::Ready(Ok(length)) }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let state = &mut *self.0.borrow_mut();
        state.transport.flush()?;
        // What TLS has left is sent when there is room: the protocol may go on.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
