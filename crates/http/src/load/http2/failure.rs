//! What the end of a stream or of a connection means for one request.

use std::fmt;

use h2::Reason;

use crate::load::request_stats::RequestFailure;

/// What a server is told by that has not even begun with the protocol.
const NO_HTTP2: &str = "the server does not speak HTTP/2 (leave out --http2)";

/// Why a stream or a connection is over.
#[derive(Debug)]
pub(super) enum EndReason {
    /// What the protocol has of it.
    Protocol(h2::Error),
    /// The socket, or nothing that the protocol has words for.
    Socket(String),
}

impl fmt::Display for EndReason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Protocol(error) => error.fmt(out),
            Self::Socket(text) => text.fmt(out),
        }
    }
}

/// Why a request brought no answer.
#[derive(Debug)]
pub(super) struct StreamFailure {
    pub(super) failure: RequestFailure,
    /// Whether the server declared that it did nothing of it, so that it may be sent again whatever it is (RFC 9113 8.7).
    pub(super) is_undone: bool,
    pub(super) text: String,
}

/// How far an answer had come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AnswerProgress {
    /// No head has come.
    Nothing,
    /// The head has, and of the body less than the head states.
    Incomplete,
    /// The head has, which states no length or a smaller one.
    Unknown,
}

impl StreamFailure {
    /// Of a request whose answer had come so far, on a connection over which the server had spoken HTTP/2 or nothing.
    pub(super) fn new(reason: &EndReason, progress: AnswerProgress, has_spoken: bool) -> Self {
        let is_unanswered = progress == AnswerProgress::Nothing;
        let (failure, is_undone) = match reason {
            EndReason::Protocol(error) if error.is_remote() => {
                let is_undone = error.is_go_away() || error.reason() == Some(Reason::REFUSED_STREAM);
                (RequestFailure::Reset, is_undone && is_unanswered)
            }
            // An end of stream before the length that the head states is an error of the stream alone.
            EndReason::Protocol(error) if !error.is_io() => {
                let is_short = progress == AnswerProgress::Incomplete && error.is_reset();
                (if is_short { RequestFailure::Truncated } else { RequestFailure::Malformed }, false)
            }
            _ if is_unanswered => (RequestFailure::Closed, false),
            _ => (RequestFailure::Truncated, false),
        };
        let text = match failure {
            RequestFailure::Truncated => "the body ended before its length".into(),
            RequestFailure::Closed | RequestFailure::Malformed if !has_spoken => {
                format!("{NO_HTTP2}: {reason}")
            }
            RequestFailure::Closed => "the server closed the connection without an answer".into(),
            _ => format!("HTTP/2: {reason}"),
        };
        Self { failure, is_undone, text }
    }
}
