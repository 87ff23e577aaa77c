//! A far end that gives every message back: the engine under every measure of round trips.

use std::sync::Arc;

use kelvin_harness::{Bench, Stop};
use kelvin_sys::clock::Clock;
use kelvin_sys::peer::{Board, Peer, Task};
use kelvin_sys::shared::Shared;
use kelvin_sys::usage::{Who, usage};

use super::link::{LOST, Link, Protocol, STUCK, is_late};
use crate::os::partner::Counts;

/// Round trips made under the counters before any is timed.
const PROOF_TRIPS: u64 = 64;
/// Datagrams lost one after another after which the other end counts as gone.
const MOST_LOST: u32 = 5;

/// This end of a link whose other end gives every message back.
#[derive(Debug)]
pub(crate) struct Echo {
    link: Link,
    /// Nothing, if somebody else looks after it.
    far: Option<Far>,
    message: Vec<u8>,
    answer: Vec<u8>,
    trips: u64,
    lost: u64,
}

/// The process at the other end, on this machine.
#[derive(Debug)]
struct Far {
    board: Arc<Shared<Board>>,
    peer: Option<Peer>,
}

impl Echo {
    /// Starts the other end as a process on a CPU of this machine.
    pub(super) fn start(protocol: Protocol, size: usize, cpu: u32) -> Result<Self, Stop> {
        let starting = |error| Stop::fail(format!("cannot start the other end: {error}"));
        let (link, far) = Link::pair(protocol).map_err(starting)?;
        let board = Board::new().map_err(starting)?;
        let peer = Peer::start(Task::Process, cpu, &board, move |board| give_back(&far, size, board));
        let far = Far { peer: Some(peer.map_err(starting)?), board };
        Ok(Self { far: Some(far), ..Self::over(link, size)? })
    }

    /// Over a link whose other end gives every message back already.
    pub(crate) fn over(link: Link, size: usize) -> Result<Self, Stop> {
        link.be_patient_for(if matches!(link, Link::Udp(_)) { LOST } else { STUCK })?;
        Ok(Self { link, far: None, message: vec![0x5a; size], answer: vec![0; size], trips: 0, lost: 0 })
    }

    /// One round trip, in ticks: of a datagram that was lost on its way only the repetition counts.
    ///
    /// # Errors
    /// What the calls say; an answer to another message; an other end that is silent.
    #[inline(always)]
    pub(crate) fn timed(&mut self, clock: Clock) -> Result<u64, Stop> {
        for _ in 0..MOST_LOST {
            let start = clock.start();
            if self.round_trip()? {
                return Ok(clock.stop().wrapping_sub(start));
            }
        }
        Err(Stop::fail(format!("{MOST_LOST} messages in a row were not answered within {LOST:?} each")))
    }

    /// The send of a round trip, in ticks; the answer is waited for, so that the other end sleeps when the next one comes. For
    /// what does not get lost.
    ///
    /// # Errors
    /// As for [`Echo::timed`].
    #[inline(always)]
    pub(super) fn timed_send(&mut self, clock: Clock) -> Result<u64, Stop> {
        let number = self.next();
        let start = clock.start();
        self.link.send(&self.message)?;
        let sent = clock.stop().wrapping_sub(start);
        if self.take_answer(number)? { Ok(sent) } else { Err(Stop::fail("a message was lost")) }
    }

    /// The number of the next message, which is made to carry it.
    #[inline(always)]
    fn next(&mut self) -> u8 {
        self.trips += 1;
        self.message[0] = self.trips as u8;
        self.message[0]
    }

    /// Sends a message that carries its number, and takes the answer that carries it too; false if a datagram was lost.
    #[inline(always)]
    fn round_trip(&mut self) -> Result<bool, Stop> {
        let number = self.next();
        self.link.send(&self.message)?;
        self.take_answer(number)
    }

    /// Takes the answer to a message; false if that or the message was lost.
    #[inline(always)]
    fn take_answer(&mut self, number: u8) -> Result<bool, Stop> {
        loop {
            match self.link.receive(&mut self.answer) {
                Ok(()) if self.answer[0] == number => break,
                // The answer to a message that was given up comes late.
                Ok(()) if self.lost > 0 => {}
                Ok(()) => return Err(Stop::fail("an answer came that belongs to another message")),
                Err(error) if is_late(&error) && matches!(self.link, Link::Udp(_)) => {
                    self.lost += 1;
                    return Ok(false);
                }
                Err(error) => {
                    // What went wrong at the other end says more than that it is gone.
                    self.far.as_ref().map_or(Ok(()), |far| far.board.check())?;
                    return Err(error.into());
                }
            }
        }
        Ok(true)
    }

    /// Makes round trips under the counters of this process.
    pub(super) fn count(&mut self, clock: Clock) -> Result<Counts, Stop> {
        let before = usage(Who::Thread);
        for _ in 0..PROOF_TRIPS {
            self.timed(clock)?;
        }
        let spent = usage(Who::Thread).since(before);
        Ok(Counts {
            trips: PROOF_TRIPS,
            voluntary: spent.voluntary_switches,
            involuntary: spent.involuntary_switches,
            yields: 0,
        })
    }

    /// The proof that both ends share one CPU and hand it over, or, with two, how often this end slept; in words, with the
    /// warm-up done.
    pub(super) fn prove(&mut self, bench: &Bench<'_>, cpu: u32) -> Result<String, Stop> {
        let counts = self.count(bench.clock())?;
        if cpu == bench.cpu() {
            counts.proves_a_switch_each_way()?;
        }
        Ok(format!("other end on CPU {cpu}; {}", counts.describe()))
    }

    /// What is known of the link when all is done, in words.
    pub(super) fn describe(&self) -> Result<String, Stop> {
        let link = self.link.describe()?;
        Ok(match (&self.link, self.lost) {
            (Link::Udp(_), lost) => format!("{link}; {lost} of {} datagrams or their answers were lost", self.trips),
            _ => link,
        })
    }

    /// Ends the other end.
    pub(super) fn finish(mut self) -> Result<(), Stop> {
        let Some(mut far) = self.far.take() else { return Ok(()) };
        far.board.stop();
        self.link.send(&self.message)?;
        far.peer.take().map_or(Ok(()), |peer| peer.join(&far.board).map_err(Stop::from))
    }
}

/// The life of the other end.
fn give_back(link: &Link, size: usize, board: &Board) -> kelvin_sys::Result<()> {
    let mut message = vec![0; size];
    loop {
        link.receive(&mut message)?;
        if board.stopping() {
            return Ok(());
        }
        link.send(&message)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_comes_back_and_the_other_end_ends() {
        let cpu = *kelvin_sys::cpu::allowed().unwrap().last().unwrap();
        for protocol in [Protocol::Tcp, Protocol::Udp, Protocol::Unix] {
            for size in [1, 64, 32 << 10] {
                let mut echo = Echo::start(protocol, size, cpu).unwrap();
                for _ in 0..300 {
                    assert!(echo.timed(Clock::MonotonicRaw).unwrap() > 0);
                }
                assert!(echo.timed_send(Clock::MonotonicRaw).unwrap() > 0);
                assert_eq!(echo.answer, echo.message, "{protocol:?}");
                assert_eq!((echo.trips, echo.lost), (301, 0));
                echo.finish().unwrap();
            }
        }
    }

    #[test]
    fn a_lost_datagram_is_counted_and_its_late_answer_dropped() {
        let (link, far) = Link::pair(Protocol::Udp).unwrap();
        let mut echo = Echo::over(link, 8).unwrap();
        echo.link.be_patient_for(std::time::Duration::from_millis(20)).unwrap();
        // Nobody answers the first message in time; its answer comes before that to the second.
        assert!(!echo.round_trip().unwrap());
        let answering = std::thread::spawn(move || {
            let mut message = [0; 8];
            for _ in 0..2 {
                far.receive(&mut message).unwrap();
                far.send(&message).unwrap();
            }
        });
        assert!(echo.round_trip().unwrap());
        answering.join().unwrap();
        assert_eq!((echo.trips, echo.lost, echo.answer[0]), (2, 1, 2));
        assert!(echo.describe().unwrap().ends_with("1 of 2 datagrams or their answers were lost"));
    }
}
