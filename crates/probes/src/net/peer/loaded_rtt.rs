//! Round trip of a small message to another host during a saturating stream: the cost of the buffers between them.

use kelvin_core::catalogue::net::PEER_LOADED;
use kelvin_transfer::wire::message::{StreamPlacement, TestDirection};
use kelvin_transfer::wire::test_socket::TestSocketOptions;

use super::super::prelude::*;
use super::rate_windows::{describe_busy, host_busy_shares};
use super::streams::{EndedStreams, MESSAGE_BYTES, StreamSpec};
use super::{connect_agent, describe_agent_side, describe_interfaces, probe_error};

pub(in crate::net) static PROBE: Probe = Probe {
    summary: "Round trip of a small message to another host during a saturating stream (--peer HOST)",
    method: include_str!("loaded_rtt.md"),
    run,
    predict: |_, _, _| Err(NoPrediction::new("no host knows how deep the buffers of the network are")),
    ..Probe::study(&[&PEER_LOADED])
};

fn run(bench: &mut Bench<'_>, _: &Case) -> ProbeResult {
    let (mut stream_client, mut echo_client) = (connect_agent(bench)?, connect_agent(bench)?);
    let local_address = echo_client.local_addr;
    let (direction, streams, method) = (TestDirection::ToAgent, 1, SendMethod::Send);
    let placement = StreamPlacement::Scheduler;
    let spec = StreamSpec { direction, streams, placement, method, message: MESSAGE_BYTES, windows: 1 };
    let mut stream = stream_client
        .open_streams(direction, streams, placement, &TestSocketOptions::default())
        .map_err(probe_error)?;
    let echo = echo_client.echo_tcp(SMALL_MESSAGE as u32).map_err(probe_error)?;
    let mut messages = EchoClient::over_link(Link::Tcp(echo.socket.try_clone()?), SMALL_MESSAGE as usize)?;
    let ended = spec.stream_while(&mut stream, &[bench.cpu()], |watch| {
        let start_window = watch.settle()?;
        bench.time_each([&PEER_LOADED], |clock| Ok([messages.time_round_trip(clock)?]))?;
        Ok([start_window, watch.count_window()?])
    })?;
    let EndedStreams { measured: windows, socket, .. } = ended;
    let stream_rate = windows[1].totals.rate_since(&windows[0].totals);
    fail_if(stream_rate <= 0.0, "no bytes of the stream arrived while round trips were timed: there was no load")?;
    bench.note_last_reading(format!("the stream carried {:.1} MB/s meanwhile; {socket}", stream_rate / 1e6));
    if let Some(busy) = host_busy_shares(&windows) {
        bench.note_last_reading(describe_busy(&busy));
    }
    stream.finish().map_err(probe_error)?;
    drop(messages);
    let report = echo.finish().map_err(probe_error)?;
    bench.note_last_reading(describe_agent_side(&report, 2));
    bench.note_last_reading(describe_interfaces(local_address, &report));
    Ok(())
}
