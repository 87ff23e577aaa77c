//! A connection to a PostgreSQL server that is not believed: what it sends is bounded before the client library keeps it, and no
//! password goes out in clear text where others can read it.

use std::future::Future;
use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::UnixStream;
use tokio_postgres::Socket;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_postgres_rustls::MakeRustlsConnect;

/// Maximum bytes of a row: the largest round comes to a fraction of it.
const MAX_ROW_BYTES: u32 = 256 << 20;

/// Maximum bytes of any other message: errors, notices, descriptions of columns.
const MAX_MESSAGE_BYTES: u32 = 1 << 20;

/// Maximum bytes of a message before the server has let the client in.
const MAX_STARTUP_MESSAGE_BYTES: u32 = 64 << 10;

/// Maximum messages that are no rows in answer to what was sent last: a batch of statements has a few hundred.
const MAX_MESSAGES: u32 = 100_000;

/// Maximum parameters that a server reports, which are kept for as long as the connection lasts. PostgreSQL reports some fifteen.
const MAX_PARAMETERS: u32 = 1_000;

/// The request of TLS, which a server answers by one byte: its length and its code, by the protocol.
const TLS_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];

/// When TLS is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TlsUse {
    Never,
    IfOffered,
    Always,
}

/// Makes guarded connections; the client library takes each for one by TLS.
#[derive(Clone)]
pub(crate) struct MakeBoundedConnect {
    pub(crate) tls: MakeRustlsConnect,
    pub(crate) tls_use: TlsUse,
    /// Whether nobody else can read what goes to the server: it is on this host.
    pub(crate) is_local: bool,
}

/// One to a named host.
pub(crate) struct BoundedConnect {
    tls: <MakeRustlsConnect as MakeTlsConnect<Socket>>::TlsConnect,
    tls_use: TlsUse,
    is_local: bool,
}

type Encrypted = <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream;

impl MakeTlsConnect<Socket> for MakeBoundedConnect {
    type Stream = BoundedStream;
    type TlsConnect = BoundedConnect;
    type Error = std::convert::Infallible;

    fn make_tls_connect(&mut self, host: &str) -> Result<BoundedConnect, Self::Error> {
        let tls = MakeTlsConnect::<Socket>::make_tls_connect(&mut self.tls, host)?;
        Ok(BoundedConnect { tls, tls_use: self.tls_use, is_local: self.is_local })
    }
}

impl TlsConnect<Socket> for BoundedConnect {
    type Stream = BoundedStream;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<BoundedStream>>>>;

    fn connect(self, mut socket: Socket) -> Self::Future {
        Box::pin(async move {
            let offers_tls = self.tls_use != TlsUse::Never && {
                socket.write_all(&TLS_REQUEST).await?;
                socket.read_u8().await? == b'S'
            };
            match self.tls_use {
                _ if offers_tls => {
                    let encrypted = Box::new(self.tls.connect(socket).await?);
                    Ok(BoundedStream::new(MaybeTlsStream::Encrypted(encrypted), true))
                }
                TlsUse::Always => Err(io::Error::other("server does not support TLS")),
                _ => Ok(BoundedStream::new(MaybeTlsStream::Plain(socket), self.is_local)),
            }
        })
    }
}

/// A connection with or without TLS.
pub(crate) enum MaybeTlsStream {
    Plain(Socket),
    Local(UnixStream),
    Encrypted(Box<Encrypted>),
}

/// What bytes go through.
trait ByteStream: AsyncRead + AsyncWrite + Unpin {}

impl<S: AsyncRead + AsyncWrite + Unpin> ByteStream for S {}

/// A stream of messages of a server, which ends with an error where one is not as it may be.
pub(crate) struct BoundedStream {
    inner: MaybeTlsStream,
    messages: MessageLimits,
}

impl BoundedStream {
    /// `is_private`: nobody else can read what is sent.
    pub(crate) fn new(inner: MaybeTlsStream, is_private: bool) -> Self {
        Self { inner, messages: MessageLimits { is_private, ..MessageLimits::default() } }
    }

    fn bytes(&mut self) -> Pin<&mut dyn ByteStream> {
        Pin::new(match &mut self.inner {
            MaybeTlsStream::Plain(inner) => inner,
            MaybeTlsStream::Local(inner) => inner,
            MaybeTlsStream::Encrypted(inner) => inner,
        })
    }
}

impl AsyncRead for BoundedStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let filled_bytes = buffer.filled().len();
        ready!(self.bytes().poll_read(cx, buffer))?;
        Poll::Ready(self.messages.check(&buffer.filled()[filled_bytes..]))
    }
}

impl AsyncWrite for BoundedStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        self.messages.unsolicited = 0;
        self.bytes().poll_write(cx, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.bytes().poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.bytes().poll_shutdown(cx)
    }
}

impl TlsStream for BoundedStream {
    fn channel_binding(&self) -> ChannelBinding {
        match &self.inner {
            MaybeTlsStream::Encrypted(inner) => inner.channel_binding(),
            MaybeTlsStream::Plain(_) | MaybeTlsStream::Local(_) => ChannelBinding::none(),
        }
    }
}

/// How far into a message the bytes are: a byte of its type, four of its length, which counts itself, then the rest.
#[derive(Debug, Default)]
struct MessageLimits {
    is_private: bool,
    is_ready: bool,
    /// The beginning of a message, as far as it is looked at.
    head: [u8; 9],
    header_bytes: usize,
    /// Bytes of the message beyond its beginning.
    remaining_bytes: u32,
    /// Messages that are no rows since something was sent.
    unsolicited: u32,
    parameters: u32,
}

impl MessageLimits {
    /// Takes note of bytes that came.
    ///
    /// # Errors
    /// If they are of a message that is too long, one too many, or asks for a password that others would read.
    fn check(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let consumed = bytes.len().min(self.remaining_bytes as usize);
            self.remaining_bytes -= consumed as u32;
            bytes = &bytes[consumed..];
            let Some((&byte, rest)) = bytes.split_first() else { return Ok(()) };
            bytes = rest;
            self.head[self.header_bytes] = byte;
            self.header_bytes += 1;
            match self.header_bytes {
                5 => self.check_header()?,
                9 => self.check_authentication()?,
                _ => {}
            }
        }
        Ok(())
    }

    /// The length of the message, which counts itself.
    fn length(&self) -> u32 {
        u32::from_be_bytes([self.head[1], self.head[2], self.head[3], self.head[4]])
    }

    /// Type and length are known.
    fn check_header(&mut self) -> io::Result<()> {
        let kind = self.head[0];
        let body = self.length().checked_sub(4).ok_or_else(|| protocol_error("a message without a length"))?;
        let limit = match kind {
            _ if !self.is_ready => MAX_STARTUP_MESSAGE_BYTES,
            b'D' => MAX_ROW_BYTES,
            _ => MAX_MESSAGE_BYTES,
        };
        if body > limit {
            return Err(protocol_error(&format!(
                "a message of {body} bytes, of which {limit} are the most that is read"
            )));
        }
        self.is_ready |= kind == b'Z';
        self.unsolicited += u32::from(kind != b'D');
        self.parameters += u32::from(kind == b'S');
        if self.unsolicited > MAX_MESSAGES || self.parameters > MAX_PARAMETERS {
            return Err(protocol_error("messages without end"));
        }
        // How a server asks for a password stands in the first four bytes.
        if kind == b'R' && body >= 4 {
            self.remaining_bytes = 0;
        } else {
            (self.remaining_bytes, self.header_bytes) = (body, 0);
        }
        Ok(())
    }

    /// How the server wants to know who this is.
    fn check_authentication(&mut self) -> io::Result<()> {
        const CLEAR_TEXT: [u8; 4] = [0, 0, 0, 3];
        if self.head[5..] == CLEAR_TEXT && !self.is_private {
            let message = "the server asks for the password in clear text, without TLS: others could read it; sslmode=require wants TLS";
            return Err(io::Error::new(ErrorKind::PermissionDenied, message));
        }
        (self.remaining_bytes, self.header_bytes) = (self.length() - 8, 0);
        Ok(())
    }
}

fn protocol_error(problem: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("the server sends {problem}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![kind];
        bytes.extend((body.len() as u32 + 4).to_be_bytes());
        bytes.extend(body);
        bytes
    }

    /// What becomes of bytes that come in pieces of this many.
    fn check_in_pieces(bytes: &[u8], piece: usize, is_private: bool) -> Result<(), String> {
        let mut messages = MessageLimits { is_private, ..MessageLimits::default() };
        bytes.chunks(piece).try_for_each(|chunk| messages.check(chunk)).map_err(|error| error.to_string())
    }

    fn greeting() -> Vec<u8> {
        [message(b'R', &[0; 4]), message(b'S', b"a\0b\0"), message(b'Z', b"I")].concat()
    }

    #[test]
    fn ordinary_session_passes_in_any_pieces() {
        let rows = message(b'D', &[7; 100_000]);
        let session = [greeting(), rows.clone(), rows, message(b'R', b""), message(b'C', b"SELECT 2\0")].concat();
        for piece in [1, 2, 3, 7, 4096, session.len()] {
            assert_eq!(check_in_pieces(&session, piece, false), Ok(()), "{piece}");
        }
    }

    #[test]
    fn clear_text_password_needs_private_connection() {
        let request = message(b'R', &[0, 0, 0, 3]);
        for piece in [1, 4, 100] {
            assert_eq!(check_in_pieces(&request, piece, true), Ok(()));
            assert!(check_in_pieces(&request, piece, false).unwrap_err().contains("in clear text, without TLS"));
            // MD5 and SASL.
            assert_eq!(check_in_pieces(&message(b'R', &[0, 0, 0, 5, 1, 2, 3, 4]), piece, false), Ok(()));
            assert_eq!(check_in_pieces(&message(b'R', b"\0\0\0\x0aSCRAM-SHA-256\0\0"), piece, false), Ok(()));
        }
    }

    #[test]
    fn endless_messages_are_refused() {
        let long_header = |kind: u8, bytes: u32| [&[kind][..], &bytes.to_be_bytes()].concat();
        let check_after_greeting = |messages: Vec<u8>| check_in_pieces(&[greeting(), messages].concat(), 1000, false);
        assert!(check_in_pieces(&long_header(b'E', 0x7fff_ffff), 5, false).unwrap_err().contains("2147483643 bytes"));
        assert!(check_in_pieces(&long_header(b'R', MAX_STARTUP_MESSAGE_BYTES + 5), 5, false).is_err());
        assert!(check_in_pieces(&long_header(b'R', 3), 5, false).unwrap_err().contains("without a length"));
        assert_eq!(check_after_greeting(long_header(b'D', MAX_ROW_BYTES + 4)), Ok(()));
        assert!(
            check_after_greeting(long_header(b'D', MAX_ROW_BYTES + 5)).is_err()
                && check_after_greeting(long_header(b'N', MAX_MESSAGE_BYTES + 5)).is_err()
        );
        assert!(
            check_after_greeting(message(b'N', b"x").repeat(MAX_MESSAGES as usize))
                .unwrap_err()
                .contains("without end")
        );
        assert!(
            check_after_greeting(message(b'S', b"a\0b\0").repeat(MAX_PARAMETERS as usize))
                .unwrap_err()
                .contains("without end")
        );
    }
}
