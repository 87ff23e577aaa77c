//! An echo server that returns every message: the engine under every measure of round trips.

use kelvin_sys::clock::Clock;
use kelvin_sys::partner::{PartnerKind, PartnerStatus, PartnerTask};
use kelvin_sys::usage::{UsageScope, read_usage};

use super::link::{DATAGRAM_TIMEOUT, LINK_TIMEOUT, is_timeout};
use super::prelude::*;
use crate::os::partner::SwitchCounts;

/// Round trips made under the counters before any is timed.
const PROOF_TRIPS: u64 = 64;
/// Datagrams lost in a row after which the echo server counts as gone.
const MAX_LOST: u32 = 5;

/// The client of an echo server.
pub(crate) struct EchoClient {
    link: Link,
    /// The echo process on this machine; nothing, if it is not ours to end.
    server: Option<PartnerTask>,
    message: Vec<u8>,
    answer: Vec<u8>,
    trips: u64,
    lost: u64,
}

impl EchoClient {
    /// Starts the echo server as a process on a CPU of this machine.
    pub(super) fn start(protocol: Protocol, size: usize, cpu: u32) -> ProbeResult<Self> {
        let start_error = "cannot start the echo process";
        let (link, server_link) = Link::pair(protocol).or_fail(start_error)?;
        let partner = PartnerTask::start(PartnerKind::Process, cpu, move |board| echo_loop(&server_link, size, board));
        Ok(Self { server: Some(partner.or_fail(start_error)?), ..Self::over_link(link, size)? })
    }

    /// Over a link that already leads to an echo server.
    pub(crate) fn over_link(link: Link, size: usize) -> ProbeResult<Self> {
        link.set_receive_timeout(if matches!(link, Link::Udp(_)) { DATAGRAM_TIMEOUT } else { LINK_TIMEOUT })?;
        Ok(Self { link, server: None, message: vec![0x5a; size], answer: vec![0; size], trips: 0, lost: 0 })
    }

    /// One round trip, in ticks; after a lost datagram, that of the repetition.
    ///
    /// # Errors
    /// A failed call; an answer to another message; an echo server that is silent.
    #[inline(always)]
    pub(crate) fn time_round_trip(&mut self, clock: Clock) -> ProbeResult<u64> {
        for _ in 0..MAX_LOST {
            let (ticks, is_answered) = clock.time(|| self.round_trip());
            if is_answered? {
                return Ok(ticks);
            }
        }
        Err(ProbeError::fail(format!(
            "{MAX_LOST} messages in a row were not answered within {DATAGRAM_TIMEOUT:?} each"
        )))
    }

    /// The send of a round trip, in ticks; the answer is awaited, so that the echo server sleeps when the next message comes.
    /// For links that lose nothing.
    ///
    /// # Errors
    /// As for [`EchoClient::time_round_trip`].
    #[inline(always)]
    pub(super) fn time_send(&mut self, clock: Clock) -> ProbeResult<u64> {
        let number = self.number_message();
        let (send_ticks, outcome) = clock.time(|| self.link.send(&self.message));
        outcome?;
        if self.receive_reply(number)? { Ok(send_ticks) } else { Err(ProbeError::fail("a message was lost")) }
    }

    /// The number of the next message, which is written into it.
    #[inline(always)]
    fn number_message(&mut self) -> u8 {
        self.trips += 1;
        self.message[0] = self.trips as u8;
        self.message[0]
    }

    /// Sends a numbered message and receives the answer with its number; false if a datagram was lost.
    #[inline(always)]
    fn round_trip(&mut self) -> ProbeResult<bool> {
        let number = self.number_message();
        self.link.send(&self.message)?;
        self.receive_reply(number)
    }

    /// Receives the answer to a message; false if that or the message was lost.
    #[inline(always)]
    fn receive_reply(&mut self, number: u8) -> ProbeResult<bool> {
        loop {
            match self.link.receive(&mut self.answer) {
                Ok(()) if self.answer[0] == number => break,
                // A late answer to a message that was given up.
                Ok(()) if self.lost > 0 => {}
                Ok(()) => return Err(ProbeError::fail("an answer to another message arrived")),
                Err(error) if is_timeout(&error) && matches!(self.link, Link::Udp(_)) => {
                    self.lost += 1;
                    return Ok(false);
                }
                Err(error) => {
                    // The echo process's own error states more than that it is gone.
                    self.server.as_ref().map_or(Ok(()), |server| server.check())?;
                    return Err(error.into());
                }
            }
        }
        Ok(true)
    }

    /// Makes round trips under the counters of this process.
    pub(super) fn count_round_trips(&mut self, clock: Clock) -> ProbeResult<SwitchCounts> {
        let before = read_usage(UsageScope::Thread);
        for _ in 0..PROOF_TRIPS {
            self.time_round_trip(clock)?;
        }
        let usage = read_usage(UsageScope::Thread).since(before);
        Ok(SwitchCounts {
            trips: PROOF_TRIPS,
            voluntary: usage.voluntary_switches,
            involuntary: usage.involuntary_switches,
            yields: 0,
        })
    }

    /// Warms up; the proof, in words, that both processes share and switch one CPU or, with two, how often the client slept.
    pub(super) fn warm_up_and_prove(&mut self, bench: &Bench<'_>, cpu: u32) -> ProbeResult<String> {
        let counts = self.count_round_trips(bench.clock())?;
        if cpu == bench.cpu() {
            counts.check_min_switches()?;
        }
        Ok(format!("echo process on CPU {cpu}; {}", counts.describe()))
    }

    /// What is known of the link at the end, in words.
    pub(super) fn describe(&self) -> ProbeResult<String> {
        let link = self.link.describe()?;
        Ok(match (&self.link, self.lost) {
            (Link::Udp(_), lost) => format!("{link}; {lost} of {} datagrams or their answers were lost", self.trips),
            _ => link,
        })
    }

    /// Ends the echo process.
    pub(super) fn finish(mut self) -> ProbeResult {
        let Some(mut server) = self.server.take() else { return Ok(()) };
        server.stop();
        self.link.send(&self.message)?;
        Ok(server.join()?)
    }
}

/// The loop of the echo process.
fn echo_loop(link: &Link, size: usize, board: &PartnerStatus) -> kelvin_sys::Result<()> {
    let mut message = vec![0; size];
    loop {
        link.receive(&mut message)?;
        if board.is_stopping() {
            return Ok(());
        }
        link.send(&message)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_echoed_and_process_ends() {
        let cpu = *kelvin_sys::cpu::affinity().unwrap().last().unwrap();
        for protocol in [Protocol::Tcp, Protocol::Udp, Protocol::Unix] {
            for size in [1, 64, 32 << 10] {
                let mut echo = EchoClient::start(protocol, size, cpu).unwrap();
                for _ in 0..300 {
                    assert!(echo.time_round_trip(Clock::MonotonicRaw).unwrap() > 0);
                }
                assert!(echo.time_send(Clock::MonotonicRaw).unwrap() > 0);
                assert_eq!(echo.answer, echo.message, "{protocol:?}");
                assert_eq!((echo.trips, echo.lost), (301, 0));
                echo.finish().unwrap();
            }
        }
    }

    #[test]
    fn lost_datagram_is_counted() {
        let (link, server_link) = Link::pair(Protocol::Udp).unwrap();
        let mut echo = EchoClient::over_link(link, 8).unwrap();
        echo.link.set_receive_timeout(std::time::Duration::from_millis(20)).unwrap();
        // Nobody answers the first message in time; its answer comes before that to the second.
        assert!(!echo.round_trip().unwrap());
        let responder = std::thread::spawn(move || {
            let mut message = [0; 8];
            for _ in 0..2 {
                server_link.receive(&mut message).unwrap();
                server_link.send(&message).unwrap();
            }
        });
        assert!(echo.round_trip().unwrap());
        responder.join().unwrap();
        assert_eq!((echo.trips, echo.lost, echo.answer[0]), (2, 1, 2));
        assert!(echo.describe().unwrap().ends_with("1 of 2 datagrams or their answers were lost"));
    }
}
