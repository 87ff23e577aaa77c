//! What the command line asks of the sockets of TCP streams, checked before anything is measured.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpListener};

use kelvin_harness::{Plan, SocketOptions};
use kelvin_model::Metric;
use kelvin_sys::net;

use crate::cli::MeasureArgs;
use crate::fault::Fault;

/// The probe whose streams they are.
const STREAMS: &str = "net.bandwidth.tcp";

/// What is asked for, which this kernel has.
///
/// # Errors
/// A name that the kernel does not know; that nothing which it is for is to be measured.
pub fn asked(args: &MeasureArgs, plan: &Plan) -> Result<SocketOptions, Fault> {
    let sockets = SocketOptions { congestion_control: args.congestion_control.clone(), buffers: args.socket_buffers };
    let option = match (&sockets.congestion_control, sockets.buffers) {
        (None, None) => return Ok(sockets),
        (Some(_), _) => "--congestion-control",
        (None, Some(_)) => "--socket-buffers",
    };
    if !plan.units.iter().any(|unit| !unit.only_input && unit.probe.id == STREAMS) {
        return Err(Fault::because(format!(
            "{option}: it is for {STREAMS}, which is not to be measured; name it too (kelvin run {STREAMS}), or leave \
             {option} out"
        )));
    }
    sockets.congestion_control.as_deref().map(find_congestion_control).transpose()?;
    Ok(sockets)
}

/// Whether what a metric comes to can stand beside what it comes to in other runs: not where its sockets were asked for
/// something of this run's own.
pub fn is_usual(metric: &Metric, sockets: &SocketOptions) -> bool {
    metric.id != *STREAMS || *sockets == SocketOptions::default()
}

/// Fails unless a TCP socket can be given this congestion control.
fn find_congestion_control(name: &str) -> Result<(), Fault> {
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
    use super::*;

    #[test]
    fn only_streams_of_unusual_sockets_are_unlike_those_of_other_runs() {
        let (streams, other) = (Metric::rate(STREAMS, "Streams"), Metric::rate("net.bandwidth.udp", "Datagrams"));
        let asked = SocketOptions { congestion_control: None, buffers: Some(65_536) };
        assert!(is_usual(&streams, &SocketOptions::default()) && is_usual(&other, &asked));
        assert!(!is_usual(&streams, &asked));
    }
}
