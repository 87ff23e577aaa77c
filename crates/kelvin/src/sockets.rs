//! The socket options of streams on the command line, checked before anything is measured.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;

use kelvin_catalogue::net::{BANDWIDTH_TCP, BANDWIDTH_TCP_WAY, BANDWIDTH_UNIX, PEER_BANDWIDTH, PEER_BANDWIDTH_MESSAGE};
use kelvin_harness::{OtherHost, Plan, SocketOptions};
use kelvin_model::Metric;
use kelvin_sys::net;
use kelvin_wire::address::Shown;
use kelvin_wire::client::Client;
use kelvin_wire::message::Direction;
use kelvin_wire::secret::Secret;
use kelvin_wire::sockets::Sockets;

use crate::cli::MeasureArgs;
use crate::fault::Fault;

/// The probes that they apply to: on this machine, and to another host.
const HERE: [&str; 2] = [BANDWIDTH_TCP.id.as_str(), BANDWIDTH_TCP_WAY.id.as_str()];
const TO_PEER: [&str; 2] = [PEER_BANDWIDTH.id.as_str(), PEER_BANDWIDTH_MESSAGE.id.as_str()];

/// The one over Unix sockets, which have buffers and no congestion control.
const OVER_UNIX: &str = BANDWIDTH_UNIX.id.as_str();

fn is_over_tcp(probe: &str) -> bool {
    HERE.contains(&probe) || TO_PEER.contains(&probe)
}

/// Whether these options change the streams of a probe.
fn is_changed(sockets: &SocketOptions, probe: &str) -> bool {
    let over_tcp = *sockets != SocketOptions::default() && is_over_tcp(probe);
    over_tcp || (sockets.buffers.is_some() && probe == OVER_UNIX)
}

/// The options, which this kernel supports.
///
/// # Errors
/// A name that the kernel does not know, or an option that applies to nothing measured.
pub fn asked(args: &MeasureArgs, plan: &Plan) -> Result<SocketOptions, Fault> {
    let sockets = SocketOptions {
        congestion_control: args.congestion_control.clone(),
        buffers: args.socket_buffers,
        ..SocketOptions::default()
    };
    let measured =
        |applies: &dyn Fn(&str) -> bool| plan.units.iter().any(|unit| !unit.only_input && applies(unit.probe.id));
    let ignored = match (&sockets.congestion_control, sockets.buffers) {
        (Some(_), _) if !measured(&is_over_tcp) => Some("--congestion-control"),
        (_, Some(_)) if !measured(&|probe| is_changed(&sockets, probe)) => Some("--socket-buffers"),
        _ => None,
    };
    if let Some(option) = ignored {
        return Err(Fault::because(format!(
            "{option}: applies to {0}, and with --peer to {1}, but neither is measured; name one too (kelvin run {0}), or drop \
             {option}",
            HERE[0], TO_PEER[0]
        )));
    }
    sockets.congestion_control.as_deref().map(find_congestion_control).transpose()?;
    Ok(sockets)
}

/// Has the agent try them, if they apply to it, so that refusals of its host's kernel show before anything is measured.
///
/// # Errors
/// The agent's refusal.
pub fn grant(sockets: &SocketOptions, plan: &Plan, agent: &OtherHost) -> Result<(), Fault> {
    let is_asked = |probe: &str| TO_PEER.contains(&probe) && *sockets != SocketOptions::default();
    if !plan.units.iter().any(|unit| !unit.only_input && is_asked(unit.probe.id)) {
        return Ok(());
    }
    let secret = agent.token_file.as_deref().map_or_else(|| Ok(Secret::none()), |file| Secret::read(Path::new(file)));
    let asked = Sockets { congestion_control: sockets.congestion_control.clone(), buffers: sockets.buffers };
    let tried = secret.and_then(|secret| {
        let mut client = Client::connect(&[agent.address], &secret)?;
        client.streams(Direction::ToAgent, 1, &asked)?.finish()
    });
    tried.map(drop).map_err(|error| Fault::new(format!("--peer {}", Shown(agent.address)), error))
}

/// Whether a metric is comparable with other runs: not if its sockets had options of this run's own.
pub fn is_usual(metric: &Metric, sockets: &SocketOptions) -> bool {
    let probes = kelvin_probes::all();
    let mut changed = probes.iter().filter(|probe| is_changed(sockets, probe.id)).flat_map(|probe| probe.metrics);
    !changed.any(|known| known.id == metric.id)
}

/// Fails unless a TCP socket can be given this congestion control.
///
/// # Errors
/// What the kernel says.
pub fn find_congestion_control(name: &str) -> Result<(), Fault> {
    let doing = format!("--congestion-control {name}");
    let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let tried = socket.and_then(|socket| net::set_congestion_control(&socket, name));
    tried.map_err(|error| match (error.kind(), net::congestion_controls()) {
        (ErrorKind::NotFound | ErrorKind::InvalidInput, Ok(known)) => {
            Fault::new(doing, format!("this kernel has no such congestion control; it has {}", known.join(", ")))
        }
        (ErrorKind::PermissionDenied, _) => Fault::new(
            doing,
            "only a privileged user may choose it here; net.ipv4.tcp_allowed_congestion_control lists those that anyone may",
        ),
        _ => Fault::new(doing, error),
    })
}

#[cfg(test)]
mod tests {
    use kelvin_catalogue::net::{BANDWIDTH_UDP, PEER_BANDWIDTH_BUSY_THERE, PEER_BANDWIDTH_UDP, PEER_LOADED};

    use super::*;

    #[test]
    fn only_streams_of_unusual_sockets_are_unlike_those_of_other_runs() {
        let asked = SocketOptions { buffers: Some(65_536), ..SocketOptions::default() };
        let to_peer = [&PEER_BANDWIDTH, &PEER_BANDWIDTH_BUSY_THERE, &PEER_BANDWIDTH_MESSAGE];
        for streams in to_peer.into_iter().chain([&BANDWIDTH_TCP, &BANDWIDTH_TCP_WAY]) {
            assert!(is_usual(streams, &SocketOptions::default()) && !is_usual(streams, &asked), "{}", streams.id);
        }
        for other in [&BANDWIDTH_UDP, &PEER_BANDWIDTH_UDP, &PEER_LOADED] {
            assert!(is_usual(other, &asked), "{}", other.id);
        }
        // Unix sockets have buffers and no congestion control.
        let paced = SocketOptions { congestion_control: Some("reno".into()), ..SocketOptions::default() };
        assert!(!is_usual(&BANDWIDTH_UNIX, &asked) && is_usual(&BANDWIDTH_UNIX, &paced));
        assert!(!is_usual(&BANDWIDTH_TCP, &paced));
    }
}
