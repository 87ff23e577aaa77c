//! The socket options of streams on the command line, checked before anything is measured.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;

use kelvin_core::Metric;
use kelvin_harness::{AgentEndpoint, Plan, TcpOptions};
use kelvin_sys::net;
use kelvin_transfer::wire::address::DisplayAddr;
use kelvin_transfer::wire::client::AgentClient;
use kelvin_transfer::wire::message::{StreamPlacement, TestDirection};
use kelvin_transfer::wire::test_socket::TestSocketOptions;

use crate::cli::RunOptions;
use crate::cli_error::{CliError, Context};
use crate::peer_agent::read_secret;
use crate::probe_options::{LOCAL_STREAM_PROBES, PEER_STREAM_PROBES, UNIX_STREAM_PROBE, is_over_tcp};

/// Whether these options change the streams of a probe.
fn affects_probe(sockets: &TcpOptions, probe: &str) -> bool {
    let is_tcp_affected = *sockets != TcpOptions::default() && is_over_tcp(probe);
    is_tcp_affected || (sockets.buffers.is_some() && probe == UNIX_STREAM_PROBE)
}

/// The options, which this kernel supports.
///
/// # Errors
/// A name that the kernel does not know, or an option that applies to nothing measured.
pub fn requested_options(options: &RunOptions, plan: &Plan) -> Result<TcpOptions, CliError> {
    let sockets = TcpOptions {
        congestion_control: options.congestion_control.clone(),
        buffers: options.socket_buffers,
        ..TcpOptions::default()
    };
    let is_measured =
        |predicate: &dyn Fn(&str) -> bool| plan.units.iter().any(|unit| !unit.only_input && predicate(unit.probe.id));
    let ignored = match (&sockets.congestion_control, sockets.buffers) {
        (Some(_), _) if !is_measured(&is_over_tcp) => Some("--congestion-control"),
        (_, Some(_)) if !is_measured(&|probe| affects_probe(&sockets, probe)) => Some("--socket-buffers"),
        _ => None,
    };
    if let Some(option) = ignored {
        let (local, peer) = (LOCAL_STREAM_PROBES[0], PEER_STREAM_PROBES[0]);
        let reason = format!("applies to {local}, and with --peer to {peer}, but neither is measured");
        bail!("{option}: {reason}; name one too (kelvin run {local}), or drop {option}");
    }
    sockets.congestion_control.as_deref().map(check_congestion_control).transpose()?;
    Ok(sockets)
}

/// Has the agent try them, if they apply to it, so that refusals of its host's kernel show before anything is measured.
///
/// # Errors
/// The agent's refusal.
pub fn check_on_agent(sockets: &TcpOptions, plan: &Plan, agent: &AgentEndpoint) -> Result<(), CliError> {
    let is_affected = |probe: &str| PEER_STREAM_PROBES.contains(&probe) && *sockets != TcpOptions::default();
    if !plan.units.iter().any(|unit| !unit.only_input && is_affected(unit.probe.id)) {
        return Ok(());
    }
    let secret = read_secret(agent.token_file.as_deref().map(Path::new))?;
    let options = TestSocketOptions {
        congestion_control: sockets.congestion_control.clone(),
        buffers: sockets.buffers,
        segment: None,
    };
    let result = AgentClient::connect(&[agent.address], &secret).and_then(|mut client| {
        client.open_streams(TestDirection::ToAgent, 1, StreamPlacement::Scheduler, &options)?.finish()
    });
    result.map(drop).context(format_args!("--peer {}", DisplayAddr(agent.address)))
}

/// Whether a metric is comparable with other runs: not if its sockets had options of this run's own.
pub fn has_default_options(metric: &Metric, sockets: &TcpOptions) -> bool {
    let probes = kelvin_probes::all();
    let mut affected_metrics =
        probes.iter().filter(|probe| affects_probe(sockets, probe.id)).flat_map(|probe| probe.metrics);
    !affected_metrics.any(|affected| affected.id == metric.id)
}

/// Fails unless a TCP socket can be given this congestion control.
///
/// # Errors
/// The kernel's error.
pub fn check_congestion_control(name: &str) -> Result<(), CliError> {
    let action = format!("--congestion-control {name}");
    let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let result = socket.and_then(|socket| net::set_congestion_control(&socket, name));
    result.map_err(|error| match (error.kind(), net::congestion_controls()) {
        (ErrorKind::NotFound | ErrorKind::InvalidInput, Ok(available)) => {
            CliError::new(action, format!("this kernel has no such congestion control; it has {}", available.join(", ")))
        }
        (ErrorKind::PermissionDenied, _) => CliError::new(
            action,
            "only a privileged user may choose it here; net.ipv4.tcp_allowed_congestion_control lists those that anyone may",
        ),
        _ => CliError::new(action, error),
    })
}

#[cfg(test)]
mod tests {
    use kelvin_core::catalogue::net::{
        BANDWIDTH_TCP, BANDWIDTH_TCP_METHOD, BANDWIDTH_UDP, BANDWIDTH_UNIX, PEER_BANDWIDTH, PEER_BANDWIDTH_BUSY_THERE,
        PEER_BANDWIDTH_MESSAGE, PEER_BANDWIDTH_UDP, PEER_LOADED,
    };

    use super::*;

    #[test]
    fn socket_options_affect_only_their_probes() {
        let options = TcpOptions { buffers: Some(65_536), ..TcpOptions::default() };
        let to_peer = [&PEER_BANDWIDTH, &PEER_BANDWIDTH_BUSY_THERE, &PEER_BANDWIDTH_MESSAGE];
        for streams in to_peer.into_iter().chain([&BANDWIDTH_TCP, &BANDWIDTH_TCP_METHOD]) {
            assert!(
                has_default_options(streams, &TcpOptions::default()) && !has_default_options(streams, &options),
                "{}",
                streams.id
            );
        }
        for metric in [&BANDWIDTH_UDP, &PEER_BANDWIDTH_UDP, &PEER_LOADED] {
            assert!(has_default_options(metric, &options), "{}", metric.id);
        }
        // Unix sockets have buffers and no congestion control.
        let paced = TcpOptions { congestion_control: Some("reno".into()), ..TcpOptions::default() };
        assert!(!has_default_options(&BANDWIDTH_UNIX, &options) && has_default_options(&BANDWIDTH_UNIX, &paced));
        assert!(!has_default_options(&BANDWIDTH_TCP, &paced));
    }
}
