//! What is logged of a connection: answers that are being sent, until each was, or the connection is over.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;

use rustix::net::getpeername;

use crate::serve::access_log::AccessLog;
use crate::serve::access_log::line::{Line, LogFormat, append_escaped};
use crate::serve::request::{field_values, first_line};

/// What is logged of a connection. A line states what was sent, so it is written when the answer was, or the connection is dropped.
#[derive(Debug)]
pub(crate) struct ConnectionLog {
    log: Arc<AccessLog>,
    peer: Box<str>,
    /// The answers that are not sent to their ends, in their order.
    pending: VecDeque<PendingAnswer>,
}

#[derive(Debug)]
struct PendingAnswer {
    status: u16,
    unsent_head_bytes: u64,
    unsent_content_bytes: u64,
    sent_content_bytes: u64,
    /// The first line of the request, and behind it what the client says of itself.
    text: Vec<u8>,
    request_length: usize,
}

impl ConnectionLog {
    /// Of the client at the other end of this socket.
    pub fn new(log: &Arc<AccessLog>, socket: impl AsFd) -> Self {
        let peer = getpeername(socket).ok().flatten().and_then(|peer| SocketAddr::try_from(peer).ok());
        // As nginx has it for those that have no address.
        let peer = peer.map_or_else(|| "unix:".into(), |peer| peer.ip().to_canonical().to_string());
        Self { log: Arc::clone(log), peer: peer.into(), pending: VecDeque::new() }
    }

    /// A request with this head, or what was none, was answered by these bytes, and this many that follow them.
    pub fn add_answer(&mut self, head: &[u8], answer: &[u8], following_bytes: u64) {
        let mut text = Vec::new();
        append_escaped(first_line(head).unwrap_or(head).trim_ascii_end(), &mut text);
        let request_length = text.len();
        if self.log.format == LogFormat::Combined {
            for name in ["referer", "user-agent"] {
                text.extend_from_slice(b" \"");
                append_escaped(field_values(head, name).next().unwrap_or_default(), &mut text);
                text.push(b'"');
            }
        }
        let head_bytes = memchr::memmem::find(answer, b"\r\n\r\n").map_or(answer.len(), |end| end + 4);
        let status = answer.get(9..12).and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
        self.pending.push_back(PendingAnswer {
            status: status.unwrap_or_default(),
            unsent_head_bytes: head_bytes as u64,
            unsent_content_bytes: (answer.len() - head_bytes) as u64 + following_bytes,
            sent_content_bytes: 0,
            text,
            request_length,
        });
    }

    /// This many bytes were sent.
    pub fn mark_sent(&mut self, mut bytes: u64) {
        while let Some(answer) = self.pending.front_mut() {
            let head_bytes = bytes.min(answer.unsent_head_bytes);
            let content_bytes = (bytes - head_bytes).min(answer.unsent_content_bytes);
            answer.unsent_head_bytes -= head_bytes;
            answer.unsent_content_bytes -= content_bytes;
            answer.sent_content_bytes += content_bytes;
            bytes -= head_bytes + content_bytes;
            if answer.unsent_head_bytes + answer.unsent_content_bytes > 0 {
                return;
            }
            self.write_first();
        }
    }

    /// Writes the line of the first answer, which is over.
    fn write_first(&mut self) {
        let Some(answer) = self.pending.pop_front() else { return };
        let (request, client) = answer.text.split_at(answer.request_length);
        let PendingAnswer { status, sent_content_bytes: bytes, .. } = answer;
        self.log.append(&Line { peer: &self.peer, request, status, bytes, client });
    }
}

impl Drop for ConnectionLog {
    fn drop(&mut self) {
        while !self.pending.is_empty() {
            self.write_first();
        }
    }
}
