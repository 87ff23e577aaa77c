//! One request in flight, and the answer to it as far as it has come.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use h2::RecvStream;
use h2::client::ResponseFuture;
use http::header::CONTENT_LENGTH;
use kelvin_transfer::wire::{Hash, Hasher};

use super::failure::AnswerProgress;
use crate::load::request_stats::RequestTimestamps;

/// What a slot is doing.
#[derive(Debug, Default)]
pub(super) enum SlotState {
    /// Nothing.
    #[default]
    Idle,
    /// Waiting for a connection with room for its request.
    Waiting,
    /// Waiting for the head of an answer.
    Head(ResponseFuture),
    /// Taking the body.
    Body(RecvStream),
}

/// A whole answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: u64,
    pub(super) hash: Option<Hash>,
}

#[derive(Debug)]
pub(super) struct Slot {
    pub(super) state: SlotState,
    /// The key of the connection that its request is on.
    pub(super) connection: usize,
    pub(super) request: usize,
    pub(super) times: RequestTimestamps,
    /// Whether it waited because the server allows no more at once.
    pub(super) is_limited: bool,
    /// Whether the request was sent before.
    pub(super) is_retry: bool,
    pub(super) free_since: u64,
    status: u16,
    /// The length that the head states, and the bytes that have come.
    stated_length: Option<u64>,
    received: u64,
    hasher: Option<Box<Hasher>>,
    waker: Waker,
}

impl Slot {
    pub(super) fn new(waker: Waker, hashes: bool) -> Self {
        Self {
            state: SlotState::Idle,
            connection: 0,
            request: 0,
            times: RequestTimestamps::default(),
            is_limited: false,
            is_retry: false,
            free_since: 0,
            status: 0,
            stated_length: None,
            received: 0,
            hasher: hashes.then(Box::default),
            waker,
        }
    }

    /// Whether it has a request that is on a connection.
    pub(super) fn is_sent(&self) -> bool {
        matches!(self.state, SlotState::Head(_) | SlotState::Body(_))
    }

    /// A request was sent, of which nothing has come.
    pub(super) fn begin(&mut self, response: ResponseFuture, connection: usize) {
        (self.connection, self.received, self.stated_length) = (connection, 0, None);
        if let Some(hasher) = &mut self.hasher {
            hasher.reset();
        }
        self.state = SlotState::Head(response);
    }

    /// Takes what has come; `on_body` is told of each piece of the body. Ready when the answer is whole, or there will be none.
    pub(super) fn poll(&mut self, mut on_body: impl FnMut(u64)) -> Poll<Result<Answer, h2::Error>> {
        let mut context = Context::from_waker(&self.waker);
        loop {
            match &mut self.state {
                SlotState::Idle | SlotState::Waiting => return Poll::Pending,
                SlotState::Head(response) => {
                    let Poll::Ready(response) = Pin::new(response).poll(&mut context) else { return Poll::Pending };
                    let (head, body) = response?.into_parts();
                    self.status = head.status.as_u16();
                    let length = head.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
                    self.stated_length = length;
                    self.state = SlotState::Body(body);
                }
                SlotState::Body(body) => {
                    let Poll::Ready(data) = body.poll_data(&mut context) else { return Poll::Pending };
                    let Some(data) = data.transpose()? else { return Poll::Ready(Ok(self.answer())) };
                    let length = data.len();
                    self.received += length as u64;
                    on_body(length as u64);
                    if let Some(hasher) = &mut self.hasher {
                        hasher.update(&data);
                    }
                    // It was just received, so the window has room for it again.
                    let _ = body.flow_control().release_capacity(length);
                    if body.is_end_stream() {
                        return Poll::Ready(Ok(self.answer()));
                    }
                }
            }
        }
    }

    fn answer(&self) -> Answer {
        let hash = self.hasher.as_ref().map(|hasher| hasher.finalize());
        Answer { status: self.status, body: self.received, hash }
    }

    /// How far the answer has come.
    pub(super) fn progress(&self) -> AnswerProgress {
        match (&self.state, self.stated_length) {
            (SlotState::Body(_), Some(length)) if self.received < length => AnswerProgress::Incomplete,
            (SlotState::Body(_), _) => AnswerProgress::Unknown,
            _ => AnswerProgress::Nothing,
        }
    }
}
