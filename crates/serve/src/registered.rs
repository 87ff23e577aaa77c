//! A connection that is watched: who serves it says what it does.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use kelvin_sys::clock::monotonic;
use kelvin_sys::net::departure;
use kelvin_sys::net::waiting::on_the_way;

use crate::counters::{Count, LATER, Slot, Span};
use crate::watch::Watch;

/// Time after which a send that was the last of an answer is not taken to have ended when its caller went on: nanoseconds. Sending
/// takes less, and the caller may have lost its CPU before it could look at the clock.
const PROMPT: u64 = 1_000_000;

/// A connection that is watched.
#[derive(Debug)]
pub struct Registered {
    slot: Slot,
    socket: Arc<OwnedFd>,
    /// Who is told of its end; nobody where another process finds out.
    watch: Option<Arc<Watch>>,
    /// Requests that were answered, and whose answers are not all with the kernel.
    answered: u64,
    /// Bytes of heads that are still to be sent.
    head: u64,
    /// When it last did anything.
    last: u64,
    /// When the call began that gave the end of the last answer to the kernel.
    giving: u64,
    /// When the answer that is being sent began, if nothing of it was given to the kernel.
    begun: Option<u64>,
    looking: Looking,
}

/// Finding out how much earlier than its call is over an answer leaves.
#[derive(Clone, Copy, Debug)]
enum Looking {
    /// Not now.
    Not,
    /// After so many answers more: who asks has just had the CPU, which those feel that come next.
    After(u64),
    /// Of this answer the kernel keeps when it leaves.
    Kept,
    /// It left so much earlier, and took so long; the next one shows what the finding out took of that.
    Left { ahead: u64, took: u64 },
}

impl Registered {
    /// One whose words are in this slot.
    pub fn new(slot: Slot, socket: Arc<OwnedFd>, watch: Option<Arc<Watch>>) -> Self {
        Self { slot, socket, watch, answered: 0, head: 0, last: 0, giving: 0, begun: None, looking: Looking::Not }
    }

    /// A thread serves it from now on.
    pub fn attend(&self) {
        self.slot.begin(Span::Attended, monotonic());
    }

    /// The first bytes of a request were read, which had waited so many nanoseconds. What came while an answer was still to be given
    /// is in flight after it: from when the call began that gave it. That is over later than the answer has left, by more than a client
    /// needs to ask again where the thread lost its CPU meanwhile, and that time is taken off the answer.
    pub fn arrive(&self, waited: u64) {
        let at = monotonic().saturating_sub(waited).max(self.giving);
        self.slot.begin(Span::Arrived, at);
    }

    /// A request has come, and is going to be answered.
    pub fn begin(&mut self) {
        let now = monotonic();
        self.slot.begin(Span::Arrived, now);
        self.slot.begin(Span::InService, now);
        if self.answered == 0 {
            self.begun = Some(now);
        }
        self.answered += 1;
        self.last = now;
    }

    /// This is its answer as far as it is in memory, from the first byte of its head on.
    pub fn answer(&mut self, bytes: &[u8]) {
        let head = memchr::memmem::find(bytes, b"\r\n\r\n").map_or(bytes.len(), |end| end + 4);
        self.head += head as u64;
    }

    /// So many bytes were given to the kernel, and perhaps with them all answers. Of several answers the heads count first; in the end
    /// it is the same.
    pub fn sent(&mut self, bytes: usize, is_all: bool) {
        let of_heads = self.head.min(bytes as u64);
        self.head -= of_heads;
        self.slot.add(Count::Bytes, bytes as u64 - of_heads);
        let now = monotonic();
        let begun = self.begun.take();
        if !matches!(self.slot.wanted(), 0 | LATER) {
            self.looking = self.look(begun.filter(|_| is_all), now);
        }
        if is_all {
            self.giving = self.last;
            self.end(now);
        }
        self.last = now;
    }

    /// Goes on with finding out when answers leave, after one that was given to the kernel by one call, the only ones of which it is
    /// found out: of one that took several, each of which wakes its reader, the last one's is little.
    fn look(&self, begun: Option<u64>, now: u64) -> Looking {
        match (self.looking, begun) {
            (Looking::Not, _) => return Looking::After(self.slot.wanted()),
            (Looking::After(0), _) if departure::keep(&*self.socket).is_ok() => return Looking::Kept,
            (Looking::After(more @ 1..), _) => return Looking::After(more - 1),
            (Looking::Kept, begun) => {
                let left = departure::last(&*self.socket).ok().flatten().and_then(departure::ago);
                match (left.map(|ago| ago.saturating_sub(monotonic() - now)), begun) {
                    (Some(ahead), Some(begun)) if ahead <= now - begun => {
                        return Looking::Left { ahead, took: now - begun };
                    }
                    (None, Some(_)) => {
                        self.slot.want(LATER);
                        return Looking::Not;
                    }
                    _ => {}
                }
            }
            (Looking::Left { ahead, took }, Some(begun)) => self.slot.found(ahead, took, now - begun),
            _ => {}
        }
        self.slot.want(0);
        Looking::Not
    }

    fn end(&mut self, now: u64) {
        let at = if now.saturating_sub(self.last) > PROMPT { self.left_at(now) } else { now };
        self.slot.add(Count::Requests, std::mem::take(&mut self.answered));
        self.slot.give(at);
    }

    /// When the last byte left, by the kernel's account, if all have arrived meanwhile.
    fn left_at(&self, now: u64) -> u64 {
        let way = on_the_way(&*self.socket).ok().filter(|way| way.not_sent == 0 && way.segments == 0);
        way.map_or(now, |way| now.saturating_sub(way.since_sent).max(self.last))
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.slot.leave(monotonic());
        self.watch.iter().for_each(|watch| watch.end(self.slot.number()));
    }
}
