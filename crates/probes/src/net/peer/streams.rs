//! Streams to or from the agent's host, a thread each: what arrives, and how busy both hosts are.

use std::io::Read;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::Ordering;
use std::time::Duration;

use kelvin_sys::thread_spawn::ThreadBuilder;
use kelvin_sys::{cpu, net};
use kelvin_transfer::wire::address::DisplayAddr;
use kelvin_transfer::wire::client::RunningTest;
use kelvin_transfer::wire::cpu_usage::CpuUsage;
use kelvin_transfer::wire::message::{StreamPlacement, TestDirection, TestReport};
use kelvin_transfer::wire::test_socket::TestSocketOptions;

use super::super::prelude::*;
use super::rate_windows::{
    RateWatch, SustainedWindows, Transfer, describe_burst, describe_busy, evenness, host_busy_shares,
};
use super::{connect_agent, describe_agent_side, describe_interfaces, probe_error};
use crate::net::bandwidth::describe_options;
use crate::net::sender::MessageSender;
use crate::working_cpus::spread_over_machine;

/// Bytes of a call where the measure does not vary them: many packets, and a part of a cache.
pub(super) const MESSAGE_BYTES: usize = 128 << 10;

/// What is to be streamed.
#[derive(Clone, Copy, Debug)]
pub(super) struct StreamSpec {
    pub direction: TestDirection,
    pub streams: u32,
    /// Where their threads run at the agent. Here each is on a CPU of its own, as far as there are enough.
    pub placement: StreamPlacement,
    /// How this host sends, and the bytes of each call. The agent uses the plain call, 128 KiB each.
    pub method: SendMethod,
    pub message: usize,
    /// Fewest windows of a round.
    pub windows: u32,
}

/// Streams that have ended.
pub(super) struct EndedStreams<T> {
    /// What was measured meanwhile.
    pub measured: T,
    /// The kernel's report on the first socket, in words.
    pub socket: String,
    /// What each sender achieved, where that may differ from what was requested.
    pub achieved: Vec<String>,
    /// Segments that this host sent again, over all streams.
    pub retransmits: u64,
}

/// Streams for the length of the slice, or somewhat longer: some windows are needed. Returns them, and how busy this host was and the
/// agent's; what is known of the streams is noted.
pub(super) fn run_streams(bench: &mut Bench<'_>, spec: StreamSpec) -> ProbeResult<(SustainedWindows, [CpuUsage; 2])> {
    let mut client = connect_agent(bench)?;
    let (local_address, agent) = (client.local_addr, DisplayAddr(client.agent_addr));
    let options = bench.sockets();
    let sockets = TestSocketOptions {
        congestion_control: options.congestion_control.clone(),
        buffers: options.buffers,
        segment: None,
    };
    let test = client.open_streams(spec.direction, spec.streams, spec.placement, &sockets);
    let mut test = test.or_fail(agent.to_string())?;
    let slice = Duration::from_nanos(bench.slice() as u64);
    let measure_windows = |watch: &mut RateWatch<'_, '_, _>| watch.measure_windows(slice, spec.windows);
    let cpus = spread_over_machine(bench.cpu(), bench.allowed_cpus());
    let streams = spec.stream_while(&mut test, &cpus, measure_windows)?;
    let report = test.finish().map_err(probe_error)?;
    let shared_rate = spec.describe_sharing(&streams, &cpus, &report);
    let EndedStreams { measured: sustained, socket, achieved: mut notes, .. } = streams;
    let busy = host_busy_shares(&sustained.windows).or_fail("nothing was counted")?;
    notes.dedup();
    let options = describe_options(bench.sockets(), "the congestion control of either system");
    notes.insert(0, format!("{options}; here {socket}"));
    notes.extend(report.stream.as_ref().map(|stream| format!("at the agent {stream}")));
    notes.extend(shared_rate);
    notes.extend([describe_agent_side(&report, 1), describe_interfaces(local_address, &report), describe_busy(&busy)]);
    notes.extend(sustained.burst.as_ref().map(describe_burst));
    notes.into_iter().for_each(|note| bench.note(note));
    Ok((sustained, busy))
}

impl StreamSpec {
    /// Streams over the connections of a test, by threads that go round these CPUs, while something is measured.
    pub(super) fn stream_while<T>(
        &self,
        test: &mut RunningTest<'_, Vec<TcpStream>>,
        cpus: &[u32],
        measure: impl FnOnce(&mut RateWatch<'_, '_, Vec<TcpStream>>) -> ProbeResult<T>,
    ) -> ProbeResult<EndedStreams<T>> {
        let links = test.socket.iter().map(|stream| stream.try_clone().map(Link::Tcp));
        let transfer = Transfer::new(self.direction, links.collect::<std::io::Result<_>>()?);
        std::thread::scope(|scope| {
            let start = |(number, link)| {
                let (cpu, transfer) = (cpus[number % cpus.len()], &transfer);
                let work = move || {
                    cpu::pin(&[cpu])?;
                    self.run_stream(link, transfer)
                };
                // Those that were started wait for the other host.
                ThreadBuilder::named("stream").start_in(scope, work).inspect_err(|_| transfer.stop())
            };
            let threads = transfer.links.iter().enumerate().map(start).collect::<std::io::Result<Vec<_>>>()?;
            let outcome = measure(&mut RateWatch::start(test, &transfer));
            let socket = transfer.links[0].describe();
            let retransmits = transfer.links.iter().filter_map(|link| net::tcp_info(link).ok());
            let retransmits = retransmits.map(|info| u64::from(info.retransmits)).sum();
            transfer.stop();
            let ends =
                threads.into_iter().map(|thread| thread.join().map_err(|_| ProbeError::fail("a thread panicked"))?);
            let ends = ends.collect::<ProbeResult<Vec<_>>>();
            // The agent's reason for the end of a test states more than a broken connection.
            let (measured, socket) = (outcome?, socket?);
            Ok(EndedStreams { measured, socket, achieved: ends?.into_iter().flatten().collect(), retransmits })
        })
    }

    /// Where several streams ran, and how they shared the rate, in words.
    fn describe_sharing(
        &self,
        streams: &EndedStreams<SustainedWindows>,
        cpus: &[u32],
        report: &TestReport,
    ) -> Option<String> {
        if self.streams == 1 {
            return None;
        }
        let own_cpus = &cpus[..cpus.len().min(self.streams as usize)];
        let agent_cpus = match report.had_own_cpus {
            true => format!("each on one of the agent's {} CPUs", report.cpus),
            false => format!("placed by the scheduler on the agent's {} CPUs", report.cpus),
        };
        let retransmits = match self.direction {
            TestDirection::ToAgent => streams.retransmits,
            TestDirection::FromAgent => report.retransmits,
        };
        let share = evenness(&streams.measured.windows).map_or_else(
            || "none carried anything".into(),
            |share| format!("the slowest carried {share:.2} of the fastest"),
        );
        Some(format!(
            "{} streams on CPUs {} here, {agent_cpus}: {share}; {retransmits} segments of them were sent again",
            self.streams,
            kelvin_core::cpu_ranges(own_cpus)
        ))
    }

    /// Sends or receives until stopped; what was achieved, where that may differ from what was requested.
    fn run_stream(&self, link: &Link, transfer: &Transfer) -> ProbeResult<Option<String>> {
        transfer.threads.register();
        if self.direction == TestDirection::FromAgent {
            return receive(link, transfer).map(|()| None);
        }
        let to_probe_error = |error| ProbeError::fail(format!("cannot send to the agent: {error}"));
        let mut sender = MessageSender::new(self.method, link, self.message).map_err(to_probe_error)?;
        while !transfer.is_over.load(Ordering::Relaxed) {
            match sender.send(link) {
                Ok(()) => drop(transfer.bytes.fetch_add(self.message as u64, Ordering::Relaxed)),
                Err(_) if transfer.is_over.load(Ordering::Relaxed) => break,
                Err(error) => return Err(to_probe_error(error)),
            }
        }
        sender.describe_achieved(link).map_err(to_probe_error)
    }
}

impl Transfer {
    /// Stops the threads that move bytes. What is still in the buffers may be seconds of a slow link: it is dropped when the connections
    /// are closed.
    fn stop(&self) {
        self.is_over.store(true, Ordering::Relaxed);
        for link in &self.links {
            let Link::Tcp(stream) = link else { continue };
            // A connection that is gone already is no error.
            let _ = net::reset_on_close(stream);
            if self.direction == TestDirection::ToAgent {
                // A sender that waits for room sees it. A receiver sees the end at the next bytes, for the agent sends until the
                // test is over.
                let _ = stream.shutdown(Shutdown::Write);
            }
        }
    }
}

fn receive(link: &Link, transfer: &Transfer) -> ProbeResult {
    let Link::Tcp(stream) = link else { return Err(ProbeError::fail("the agent sends over TCP")) };
    let mut buffer = vec![0; MESSAGE_BYTES];
    while !transfer.is_over.load(Ordering::Relaxed) {
        match { stream }.read(&mut buffer) {
            Ok(0) => return Err(ProbeError::fail("the agent ended a stream")),
            Ok(_) => {}
            Err(_) if transfer.is_over.load(Ordering::Relaxed) => break,
            Err(error) => return Err(ProbeError::fail(format!("cannot receive from the agent: {error}"))),
        }
    }
    Ok(())
}
