//! Tests of throughput: the client's end of their streams, and the counts of both ends from time to time.

use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use kelvin_sys::net::socket_queues::tcp_info;
use kelvin_sys::poll::wait_readable;

use super::{AgentClient, FIRST_DATAGRAM_TIMEOUT, MAX_FIRST_DATAGRAMS, connect_stream, unexpected_response};
use crate::wire::address::with_port;
use crate::wire::message::{AgentRequest, AgentResponse, TestReport, Transport};
use crate::wire::test_socket::TcpEndInfo;
use crate::wire::throughput::{EndCounts, RunningStreams, StreamGroup, StreamRole, StreamSocket, ThroughputSpec};
use crate::wire::{Error, Result};

/// How often the end of a test is looked for.
const END_POLL_INTERVAL: Duration = Duration::from_millis(5);

/// When a test is looked at, and when it ends. All times are this host's.
#[derive(Clone, Copy, Debug)]
pub struct ThroughputSchedule {
    /// Time at the beginning that does not count.
    pub warm_up: Duration,
    /// The time that counts; without, the test ends once its bytes are sent.
    pub time: Option<Duration>,
    /// From one look to the next.
    pub interval: Duration,
}

/// The counts of both ends at a moment.
#[derive(Clone, Debug)]
pub struct ThroughputSample {
    /// When it was due, since the test began: the end of the warm-up is one.
    pub due: Duration,
    /// The time since the test began here.
    pub time: Duration,
    /// This end's counts.
    pub here: EndCounts,
    /// The agent's.
    pub there: EndCounts,
}

/// What came of a test.
#[derive(Debug)]
pub struct ThroughputOutcome {
    /// The counts from the beginning to the end of the test; what arrived after it is not in them.
    pub samples: Vec<ThroughputSample>,
    /// The counts once nothing more was on its way; `None` if the test was cut short.
    pub last: Option<ThroughputSample>,
    /// The kernel's report on the first connection here.
    pub connection: Option<TcpEndInfo>,
    /// CPU time of the streams here, in nanoseconds: in user mode, and in the kernel.
    pub cpu_nanoseconds: [u64; 2],
    /// The agent's account; `None` if the test was cut short.
    pub report: Option<TestReport>,
}

impl ThroughputSchedule {
    /// When it is looked at next after this time.
    fn next_look(&self, time: Duration) -> Duration {
        let next = time + self.interval;
        match self.time {
            _ if time < self.warm_up => next.min(self.warm_up),
            Some(counted) => next.min(self.warm_up + counted),
            None => next,
        }
    }

    /// Like `next_look`, where so much has passed already: looks that were missed are left out, but for the end of the warm-up.
    fn next_due(&self, last: Duration, elapsed: Duration) -> Duration {
        let mut due = self.next_look(last);
        while due != self.warm_up && !self.is_end(due) && self.next_look(due) <= elapsed {
            due = self.next_look(due);
        }
        due
    }

    fn is_end(&self, time: Duration) -> bool {
        self.time.is_some_and(|counted| time >= self.warm_up + counted)
    }
}

impl AgentClient {
    /// The largest payload of a segment to the agent, in bytes, as the control connection has it.
    ///
    /// # Errors
    /// A failed system call.
    pub fn segment(&self) -> Result<u32> {
        tcp_info(&self.channel.stream).map(|info| info.segment).map_err(Error::call("read TCP_INFO"))
    }

    /// Makes a test of throughput. Each look at it is shown to the observer, with the one before it. It ends early when this function says so.
    ///
    /// # Errors
    /// An agent that refuses or is gone, or a stream that failed.
    pub fn measure_throughput(
        &mut self,
        spec: &ThroughputSpec,
        schedule: &ThroughputSchedule,
        is_stopped: &dyn Fn() -> bool,
        observe: &mut dyn FnMut(&ThroughputSample, &ThroughputSample),
    ) -> Result<ThroughputOutcome> {
        self.channel.send(&AgentRequest::Throughput(spec.clone()), super::RESPONSE_TIMEOUT)?;
        let sockets = match spec.transport {
            Transport::Tcp => self.throughput_connections(spec)?,
            Transport::Udp => self.throughput_datagrams(spec)?,
        };
        let there = self.answer_carried(spec, None)?;
        let roles = (0..spec.streams()).map(|number| match number < spec.to_agent {
            true => StreamRole::Sends,
            false => StreamRole::Receives,
        });
        let group = StreamGroup::new(spec, roles.zip(sockets).collect())?;
        let mut test = ClientTest { client: self, spec, schedule, start: Instant::now() };
        let (mut outcome, cpu_nanoseconds) = group.run(|running| test.follow(running, there, is_stopped, observe))?;
        outcome.cpu_nanoseconds = cpu_nanoseconds;
        if outcome.last.is_some() {
            outcome.report = Some(self.end_test()?);
        }
        Ok(outcome)
    }

    pub(in crate::wire) fn throughput_connections(&mut self, spec: &ThroughputSpec) -> Result<Vec<StreamSocket>> {
        let AgentResponse::Ready { port, cookie } = self.answer()? else { return Err(unexpected_response()) };
        let address = with_port(self.agent_addr, port);
        let connections = (0..spec.streams()).map(|_| connect_stream(address, &cookie, &spec.sockets));
        connections.map(|connection| connection.map(StreamSocket::Tcp)).collect()
    }

    pub(in crate::wire) fn throughput_datagrams(&mut self, spec: &ThroughputSpec) -> Result<Vec<StreamSocket>> {
        (0..spec.streams()).map(|_| self.throughput_socket()).collect()
    }

    /// A socket for datagrams, registered with the agent. Its next message shows that it knows the socket: the answer to the first datagram
    /// may be lost.
    fn throughput_socket(&mut self) -> Result<StreamSocket> {
        let AgentResponse::Ready { port, cookie } = self.answer()? else { return Err(unexpected_response()) };
        let socket =
            UdpSocket::bind(with_port(self.local_addr, 0)).map_err(Error::call("open a socket for the test"))?;
        let to_error = Error::call("set up the test");
        socket.connect(with_port(self.agent_addr, port)).map_err(to_error)?;
        for _ in 0..MAX_FIRST_DATAGRAMS {
            socket.send(&cookie).map_err(to_error)?;
            if wait_readable(self.channel.stream.as_fd(), FIRST_DATAGRAM_TIMEOUT).map_err(to_error)? {
                return Ok(StreamSocket::Udp(socket, cookie));
            }
        }
        let seconds = (FIRST_DATAGRAM_TIMEOUT * MAX_FIRST_DATAGRAMS).as_secs_f64();
        Err(Error::TimedOut { doing: "receive a datagram (does a firewall drop them?)", seconds })
    }

    fn answer_carried(&mut self, spec: &ThroughputSpec, earlier: Option<&EndCounts>) -> Result<EndCounts> {
        let AgentResponse::Carried(counts) = self.answer()? else { return Err(unexpected_response()) };
        counts.check_after(earlier, spec.streams() as usize).map(|()| counts)
    }
}

/// A test while it runs.
struct ClientTest<'a> {
    client: &'a mut AgentClient,
    spec: &'a ThroughputSpec,
    schedule: &'a ThroughputSchedule,
    start: Instant,
}

impl ClientTest<'_> {
    /// Looks at the test until its end, and has both ends finish.
    fn follow(
        &mut self,
        running: &mut RunningStreams<'_, '_>,
        there: EndCounts,
        is_stopped: &dyn Fn() -> bool,
        observe: &mut dyn FnMut(&ThroughputSample, &ThroughputSample),
    ) -> Result<ThroughputOutcome> {
        self.start = Instant::now();
        // With the first look the agent begins.
        let first = self.sample(running, &AgentRequest::Count, &there)?;
        let first = ThroughputSample { due: Duration::ZERO, ..first };
        let mut samples = vec![first];
        let outcome = self.sample_until_end(running, &mut samples, is_stopped, observe);
        let last = outcome.and_then(|()| self.finish(running, &samples[samples.len() - 1])).map(Some);
        // A signal may cut off an exchange with the agent, whose end is then the end of the connection.
        let last = last.or_else(|error| if is_stopped() { Ok(None) } else { Err(error) })?;
        let connection = running.first_connection();
        Ok(ThroughputOutcome { samples, last, connection, cpu_nanoseconds: [0; 2], report: None })
    }

    fn sample_until_end(
        &mut self,
        running: &mut RunningStreams<'_, '_>,
        samples: &mut Vec<ThroughputSample>,
        is_stopped: &dyn Fn() -> bool,
        observe: &mut dyn FnMut(&ThroughputSample, &ThroughputSample),
    ) -> Result<()> {
        let mut due = Duration::ZERO;
        while !self.schedule.is_end(due) {
            due = self.schedule.next_due(due, self.start.elapsed());
            while self.start.elapsed() < due {
                let last = &samples[samples.len() - 1];
                if is_stopped() || self.is_all_sent(running, &last.there) {
                    return Ok(());
                }
                std::thread::sleep(due.saturating_sub(self.start.elapsed()).min(END_POLL_INTERVAL));
            }
            let sample = self.sample(running, &AgentRequest::Count, &samples[samples.len() - 1].there)?;
            let sample = ThroughputSample { due, ..sample };
            observe(&samples[samples.len() - 1], &sample);
            samples.push(sample);
        }
        Ok(())
    }

    /// Whether all bytes of a test that has so many were sent, as far as it is known here.
    fn is_all_sent(&self, running: &RunningStreams<'_, '_>, there: &EndCounts) -> bool {
        let has_agent_sent =
            || there.streams.iter().skip(self.spec.to_agent as usize).all(|stream| stream.ended.is_some());
        self.spec.bytes.is_some()
            && running.have_ended(StreamRole::Sends)
            && (running.have_ended(StreamRole::Receives) || has_agent_sent())
    }

    fn sample(
        &mut self,
        running: &mut RunningStreams<'_, '_>,
        request: &AgentRequest,
        earlier: &EndCounts,
    ) -> Result<ThroughputSample> {
        let here = running.counts()?;
        let time = self.start.elapsed();
        self.client.channel.send(request, super::RESPONSE_TIMEOUT)?;
        let there = self.client.answer_carried(self.spec, Some(earlier))?;
        Ok(ThroughputSample { due: time, time, here, there })
    }

    /// Stops all senders; the counts once all has arrived.
    fn finish(&mut self, running: &mut RunningStreams<'_, '_>, earlier: &ThroughputSample) -> Result<ThroughputSample> {
        running.stop_sending();
        let sample = self.sample(running, &AgentRequest::StopSending, &earlier.there)?;
        running.wait_for_end();
        Ok(ThroughputSample { here: running.counts()?, ..sample })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_end_with_warm_up_and_with_the_test() {
        let looks = |warm_up: u64, time: u64, interval: u64| {
            let [warm_up, time, interval] = [warm_up, time, interval].map(Duration::from_millis);
            let schedule = ThroughputSchedule { warm_up, time: Some(time), interval };
            let mut looks = Vec::new();
            let mut look = Duration::ZERO;
            while !schedule.is_end(look) {
                look = schedule.next_look(look);
                looks.push(look.as_millis());
            }
            looks
        };
        assert_eq!(looks(0, 3000, 1000), [1000, 2000, 3000]);
        assert_eq!(looks(1500, 2500, 1000), [1000, 1500, 2500, 3500, 4000]);
        assert_eq!(looks(0, 500, 1000), [500]);
        let schedule = ThroughputSchedule {
            warm_up: Duration::from_secs(3),
            time: Some(Duration::from_secs(5)),
            interval: Duration::from_secs(1),
        };
        let next_due = |last: u64, elapsed: u64| {
            schedule.next_due(Duration::from_secs(last), Duration::from_millis(elapsed)).as_secs()
        };
        assert_eq!([next_due(0, 500), next_due(0, 2500), next_due(0, 9000)], [1, 2, 3]);
        assert_eq!([next_due(3, 4500), next_due(3, 6500), next_due(3, 60_000)], [4, 6, 8]);
        let endless = ThroughputSchedule { warm_up: Duration::ZERO, time: None, interval: Duration::from_secs(1) };
        assert!(!endless.is_end(Duration::from_secs(1 << 40)));
    }
}
