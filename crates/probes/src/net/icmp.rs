//! Round trip of an echo request to this machine: what `ping` shows, without its printing.
//!
//! The kernel itself answers, so no other process is woken: it must not be compared with a round trip between programs.

use std::net::{Ipv4Addr, UdpSocket};

use kelvin_core::catalogue::net::{RTT_ICMP, STACK_UDP};
use kelvin_sys::net::icmp;

use super::link::{DATAGRAM_TIMEOUT, is_timeout};
use super::prelude::*;
use crate::os::syscall_null;
use crate::published;

pub(super) static PROBE: Probe = Probe {
    summary: "Round trip of an echo request (ping) over loopback",
    method: include_str!("icmp.md"),
    cases: |_, effort| {
        let sizes = [SMALL_MESSAGE, 1 << 10, 16 << 10];
        numbers(MESSAGE, if effort == Effort::Quick { &sizes[..1] } else { &sizes })
    },
    run,
    predict,
    ..Probe::measure(&[&RTT_ICMP])
};

/// Bytes of the header: type, code, checksum, identifier, sequence number.
const HEADER_BYTES: usize = 8;
const ECHO_REQUEST: u8 = 8;
const ECHO_REPLY: u8 = 0;
/// Most bytes of an IP header, which a raw socket receives too.
const MAX_IP_HEADER: usize = 60;

/// A socket for echo requests, and the request that it sends.
pub(super) struct Ping {
    socket: UdpSocket,
    kind: icmp::EchoSocketKind,
    identifier: u16,
    number: u16,
    /// The checksum of the request with number 0.
    sum: u16,
    request: Vec<u8>,
    reply: Vec<u8>,
}

impl Ping {
    /// Opens one to an address, for echo requests of this many bytes, header included.
    pub(super) fn open(to: Ipv4Addr, bytes: usize, identifier: u16) -> ProbeResult<Self> {
        let (socket, kind) = icmp::open_echo_socket().map_err(|error| match icmp::is_forbidden(&error) {
            true => ProbeError::skip(
                "needs a ping socket (the user's group within net.ipv4.ping_group_range) or a raw one (CAP_NET_RAW)",
            ),
            false => ProbeError::fail(format!("cannot open a socket for echo requests: {error}")),
        })?;
        socket.connect((to, 0))?;
        socket.set_read_timeout(Some(DATAGRAM_TIMEOUT))?;
        let (mut request, reply) = (vec![0x5a; bytes], vec![0; bytes + MAX_IP_HEADER]);
        let sum = write_request_header(&mut request, identifier);
        Ok(Self { socket, kind, identifier, number: 0, sum, request, reply })
    }

    /// Which socket sends them, in words.
    pub(super) fn describe(&self) -> &'static str {
        match self.kind {
            icmp::EchoSocketKind::Datagram => "by a ping socket",
            icmp::EchoSocketKind::Raw => "by a raw socket, as no ping socket is permitted",
        }
    }

    /// Sends a request and waits for its reply; false if none came.
    #[inline(always)]
    pub(super) fn round_trip(&mut self) -> ProbeResult<bool> {
        self.set_sequence(self.number.wrapping_add(1));
        if self.socket.send(&self.request)? != self.request.len() {
            return Err(ProbeError::fail("only part of an echo request was sent"));
        }
        loop {
            let received = match self.socket.recv(&mut self.reply) {
                Err(error) if is_timeout(&error) => return Ok(false),
                other => other?,
            };
            let message = strip_ip_header(&self.reply[..received], self.kind)?;
            if self.is_answered_by(message) {
                return Ok(true);
            }
        }
    }

    /// Gives the request a number, and changes its checksum by that: computed anew it would be a part of what is timed. The kernel computes
    /// it of what a ping socket sends.
    #[inline(always)]
    fn set_sequence(&mut self, number: u16) {
        self.number = number;
        self.request[6..8].copy_from_slice(&number.to_be_bytes());
        let checksum = !fold_carries(u64::from(!self.sum) + u64::from(number));
        self.request[2..4].copy_from_slice(&checksum.to_be_bytes());
    }

    /// Whether a message is the reply to the last request. The kernel gives a ping socket only replies with its own identifier.
    fn is_answered_by(&self, message: &[u8]) -> bool {
        let is_own_identifier =
            self.kind == icmp::EchoSocketKind::Datagram || message.get(4..6) == Some(&self.identifier.to_be_bytes());
        is_own_identifier
            && message.first() == Some(&ECHO_REPLY)
            && message.get(6..8) == Some(&self.number.to_be_bytes())
            && message[HEADER_BYTES..] == self.request[HEADER_BYTES..]
    }
}

/// Writes the header of an echo request with number 0, and returns its checksum.
fn write_request_header(request: &mut [u8], identifier: u16) -> u16 {
    request[..HEADER_BYTES].fill(0);
    request[0] = ECHO_REQUEST;
    request[4..6].copy_from_slice(&identifier.to_be_bytes());
    let sum = checksum(request);
    request[2..4].copy_from_slice(&sum.to_be_bytes());
    sum
}

/// The ones' complement sum of RFC 1071.
fn checksum(bytes: &[u8]) -> u16 {
    let (pairs, rest) = bytes.as_chunks::<2>();
    let mut sum: u64 = pairs.iter().map(|pair| u64::from(u16::from_be_bytes(*pair))).sum();
    sum += rest.first().map_or(0, |&byte| u64::from(byte) << 8);
    !fold_carries(sum)
}

/// A sum with its carries added to its lowest 16 bits.
fn fold_carries(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// The ICMP message within what was received.
fn strip_ip_header(received: &[u8], kind: icmp::EchoSocketKind) -> ProbeResult<&[u8]> {
    let header = match kind {
        icmp::EchoSocketKind::Datagram => 0,
        icmp::EchoSocketKind::Raw => received.first().map_or(0, |&first| 4 * usize::from(first & 0xf)),
    };
    let message = received.get(header..).filter(|message| message.len() >= HEADER_BYTES);
    message.ok_or_else(|| ProbeError::fail(format!("{} bytes arrived that are no ICMP message", received.len())))
}

fn run(bench: &mut Bench<'_>, case: &Case) -> ProbeResult {
    let bytes = message_bytes(case)?;
    let reason = format!("the case needs a message of at least {HEADER_BYTES} bytes, not {case}");
    fail_if(bytes < HEADER_BYTES, reason)?;
    let mut ping = Ping::open(Ipv4Addr::LOCALHOST, bytes, bench.seed() as u16)?;
    let reason =
        "needs a kernel that answers echo requests to 127.0.0.1 (net.ipv4.icmp_echo_ignore_all=0, no filter rule)";
    skip_if(!ping.round_trip()?, reason)?;
    bench.note(ping.describe());
    bench.time_each([&RTT_ICMP], |clock| {
        let (ticks, is_answered) = clock.time(|| ping.round_trip());
        if is_answered? {
            return Ok([ticks]);
        }
        Err(ProbeError::fail(format!("an echo request was not answered within {DATAGRAM_TIMEOUT:?}")))
    })
}

/// How often the kernel sums up the bytes of a request and its reply, and how many a cycle.
const CHECKSUM_PASSES: f64 = 3.0;
const CHECKSUM_BYTES_PER_CYCLE: f64 = 8.0;

fn predict(facts: &PredictionInputs<'_>, _: &Metric, case: &Case) -> Predicted {
    let bytes = MESSAGE.number_in(case).unwrap_or_default();
    let stack = measured(facts, &STACK_UDP, &Case::new().with_number(MESSAGE, bytes))?;
    let call = syscall_null::kernel_entry(facts)?;
    let frequency = published::measured_frequency(facts)?;
    let round_trip = (2.0 * (stack.clone() - call)).max(stack);
    let cycles = CHECKSUM_PASSES * bytes as f64 / CHECKSUM_BYTES_PER_CYCLE;
    let sums = quantity("cycles of checksums", cycles, Unit::Cycles) / frequency;
    Ok((round_trip + sums).widen(1.6).derived("two datagrams and sums"))
}

#[cfg(test)]
mod tests {
    use kelvin_core::catalogue::os::SYSCALL_NULL;

    use super::*;
    use crate::testing::with_facts;
    use kelvin_core::catalogue::cpu::FREQUENCY;

    #[test]
    fn checksum_matches_rfc_1071() {
        // RFC 1071, section 3: the sum of these is ddf2, whose complement is 220d.
        assert_eq!(checksum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), 0x220d);
        // The sum over a message with its checksum is zero, of odd length too.
        let mut request = vec![7; 65];
        write_request_header(&mut request, 0x1234);
        assert_eq!(checksum(&request), 0);
    }

    #[test]
    fn ip_header_of_any_length_is_stripped() {
        let mut received = vec![0x46];
        received.extend([0; 23]);
        received.extend([0, 0, 1, 1, 2, 2, 3, 3]);
        assert_eq!(strip_ip_header(&received, icmp::EchoSocketKind::Raw).unwrap(), [0, 0, 1, 1, 2, 2, 3, 3]);
        assert_eq!(strip_ip_header(&received, icmp::EchoSocketKind::Datagram).unwrap().len(), 32);
        assert!(strip_ip_header(&received[..28], icmp::EchoSocketKind::Raw).is_err());
        assert!(strip_ip_header(&[], icmp::EchoSocketKind::Raw).is_err());
    }

    #[test]
    fn foreign_replies_are_ignored() {
        let mut ping = match Ping::open(Ipv4Addr::LOCALHOST, 64, 0x4b4b) {
            Ok(ping) => ping,
            Err(error) => {
                return kelvin_testing::MissingRequirement::privilege(format!("{error:?}"))
                    .report_skip("replies to echo requests");
            }
        };
        for number in [0, 1, 0x7fff, 0xfffe, u16::MAX, 3] {
            ping.set_sequence(number);
            assert_eq!(checksum(&ping.request), 0, "{number}");
        }
        let mut reply = ping.request.clone();
        assert!(!ping.is_answered_by(&reply), "that is the request itself");
        reply[0] = ECHO_REPLY;
        assert!(ping.is_answered_by(&reply));
        reply[7] = 4;
        assert!(!ping.is_answered_by(&reply));
        reply[7] = 3;
        reply[20] ^= 1;
        assert!(!ping.is_answered_by(&reply));
    }

    #[test]
    fn ping_is_two_passes_and_calls() {
        let values = [
            (STACK_UDP.id.as_str(), Some(3000.0)),
            (SYSCALL_NULL.id.as_str(), Some(100.0)),
            (FREQUENCY.id.as_str(), Some(4e9)),
        ];
        let case = Case::new().with_number(MESSAGE, 64);
        // 24 times eight bytes, in a quarter of a nanosecond each.
        with_facts(&values, |facts| assert_eq!(predict(facts, &RTT_ICMP, &case).unwrap().value, 5806.0));
    }
}
