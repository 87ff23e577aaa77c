//! Streams to or from the agent's host, a thread each: what arrives, and how busy both hosts are.

use std::io::Read;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::Ordering;
use std::time::Duration;

use kelvin_core::catalogue::net::SendMethod;
use kelvin_harness::{Bench, ProbeError};
use kelvin_stats::Burst;
use kelvin_sys::thread_spawn::ThreadBuilder;
use kelvin_sys::{cpu, net};
use kelvin_transfer::wire::address::DisplayAddr;
use kelvin_transfer::wire::client::RunningTest;
use kelvin_transfer::wire::cpu_usage::CpuUsage;
use kelvin_transfer::wire::message::TestDirection;
use kelvin_transfer::wire::test_socket::TestSocketOptions;

use super::rate_windows::{
    RateWatch, RateWindow, SustainedWindows, TransferState, describe_burst, describe_busy, host_busy_shares,
};
use super::{connect_agent, describe_agent_side, describe_interfaces, probe_error};
use crate::net::bandwidth::{describe_options, stream_cpus};
use crate::net::link::Link;
use crate::net::sender::MessageSender;

/// Bytes of a call where the measure does not vary them: many packets, and a part of a cache.
pub(super) const MESSAGE_BYTES: usize = 128 << 10;

/// What is to be streamed.
#[derive(Clone, Copy, Debug)]
pub(super) struct StreamSpec {
    pub direction: TestDirection,
    pub streams: u32,
    /// How this host sends, and the bytes of each call. The agent uses the plain call, 128 KiB each.
    pub way: SendMethod,
    pub message: usize,
    /// Fewest windows of a round.
    pub windows: u32,
}

/// The outcome.
pub(super) struct StreamResult {
    pub windows: Vec<RateWindow>,
    /// What came before their rate held, beyond it.
    pub burst: Option<Burst>,
    /// How busy this host was, and the agent's.
    pub busy: [CpuUsage; 2],
}

/// Streams for the length of the slice, or somewhat longer: some windows are needed. What is known of the streams is noted.
pub(super) fn run_streams(bench: &mut Bench<'_>, wanted: StreamSpec) -> Result<StreamResult, ProbeError> {
    let mut client = connect_agent(bench)?;
    let (own, agent) = (client.local_addr(), DisplayAddr(client.agent_addr()));
    let asked = bench.sockets();
    let sockets = TestSocketOptions { congestion_control: asked.congestion_control.clone(), buffers: asked.buffers };
    let mut test = client
        .open_streams(wanted.direction, wanted.streams, &sockets)
        .map_err(|error| ProbeError::fail(format!("{agent}: {error}")))?;
    let links = duplicate_links(&mut test)?;
    let slice = Duration::from_nanos(bench.slice() as u64);
    let moving = TransferState::default();
    let cpus = stream_cpus(bench);
    let mut known = String::new();
    let (SustainedWindows { windows, burst }, mut notes) = std::thread::scope(|scope| {
        let place = |(number, link)| {
            let (cpu, moving) = (cpus[number % cpus.len()], &moving);
            let work = move || {
                cpu::pin(&[cpu])?;
                run_stream(link, &wanted, moving)
            };
            // Those that were started wait for the other host.
            ThreadBuilder::named("stream")
                .start_in(scope, work)
                .inspect_err(|_| stop_streams(moving, &links, wanted.direction))
        };
        let threads = links.iter().enumerate().map(place).collect::<std::io::Result<Vec<_>>>()?;
        let windows =
            RateWatch::start(&mut test, &moving, wanted.direction, &links).measure_windows(slice, wanted.windows);
        known = links[0].describe()?;
        stop_streams(&moving, &links, wanted.direction);
        let ends =
            threads.into_iter().map(|thread| thread.join().map_err(|_| ProbeError::fail("a thread panicked"))?);
        let ends = ends.collect::<Result<Vec<_>, ProbeError>>();
        // The agent's reason for the end of a test says more than a broken connection.
        Ok::<_, ProbeError>((windows?, ends?.into_iter().flatten().collect::<Vec<String>>()))
    })?;
    let seen = test.finish().map_err(probe_error)?;
    let busy = host_busy_shares(&windows).ok_or_else(|| ProbeError::fail("nothing was counted"))?;
    notes.dedup();
    let options = describe_options(bench.sockets(), "the congestion control of either system");
    notes.insert(0, format!("{options}; here {known}"));
    notes.extend(seen.stream.as_ref().map(|stream| format!("at the agent {stream}")));
    notes.extend([describe_agent_side(&seen, 1), describe_interfaces(own, &seen), describe_busy(&busy)]);
    notes.extend(burst.as_ref().map(describe_burst));
    notes.into_iter().for_each(|note| bench.note(note));
    Ok(StreamResult { windows, burst, busy })
}

/// Duplicates of the connections.
pub(super) fn duplicate_links(test: &mut RunningTest<'_, Vec<TcpStream>>) -> Result<Vec<Link>, ProbeError> {
    let links = test.socket().iter().map(|stream| stream.try_clone().map(Link::Tcp));
    Ok(links.collect::<std::io::Result<_>>()?)
}

/// Stops the threads that move bytes. What is still in the buffers may be seconds of a slow link: it is dropped when the
/// connections are closed.
pub(super) fn stop_streams(moving: &TransferState, links: &[Link], direction: TestDirection) {
    moving.is_over.store(true, Ordering::Relaxed);
    for link in links {
        let Link::Tcp(stream) = link else { continue };
        // A connection that is gone already is no error.
        let _ = net::reset_on_close(stream);
        if direction == TestDirection::ToAgent {
            // A sender that waits for room sees it. A receiver sees the end at the next bytes, for the agent sends until the
            // test is over.
            let _ = stream.shutdown(Shutdown::Write);
        }
    }
}

/// Sends or receives until stopped; what was achieved, where that may differ from what was asked.
pub(super) fn run_stream(
    link: &Link,
    wanted: &StreamSpec,
    moving: &TransferState,
) -> Result<Option<String>, ProbeError> {
    moving.threads.register();
    if wanted.direction == TestDirection::FromAgent {
        return receive(link, moving).map(|()| None);
    }
    let failed = |error| ProbeError::fail(format!("cannot send to the agent: {error}"));
    let mut sender = MessageSender::new(wanted.way, link, wanted.message).map_err(failed)?;
    while !moving.is_over.load(Ordering::Relaxed) {
        match sender.send(link) {
            Ok(()) => drop(moving.bytes.fetch_add(wanted.message as u64, Ordering::Relaxed)),
            Err(_) if moving.is_over.load(Ordering::Relaxed) => break,
            Err(error) => return Err(failed(error)),
        }
    }
    sender.describe_achieved(link).map_err(failed)
}

fn receive(link: &Link, moving: &TransferState) -> Result<(), ProbeError> {
    let Link::Tcp(stream) = link else { return Err(ProbeError::fail("the agent sends over TCP")) };
    let mut buffer = vec![0; MESSAGE_BYTES];
    while !moving.is_over.load(Ordering::Relaxed) {
        match { stream }.read(&mut buffer) {
            Ok(0) => return Err(ProbeError::fail("the agent ended a stream")),
            Ok(_) => {}
            Err(_) if moving.is_over.load(Ordering::Relaxed) => break,
            Err(error) => return Err(ProbeError::fail(format!("cannot receive from the agent: {error}"))),
        }
    }
    Ok(())
}
