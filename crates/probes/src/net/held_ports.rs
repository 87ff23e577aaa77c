//! Local ports still held by connections that are closed.
//!
//! A connection that this host closed first keeps its port until the other side has closed as well. Unless that side
//! resets it, the port stays a minute longer (TIME_WAIT). A loop of connections would run out of ports within seconds.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

/// States of a connection closed on this side and still held: FIN_WAIT1, FIN_WAIT2, TIME_WAIT, CLOSING, as numbered in
/// `net/tcp_states.h`.
const CLOSED_STATES: [&str; 4] = ["04", "05", "06", "0B"];
/// How long the last resets may take, a long round trip, and the time between two checks.
const RESET_GRACE: Duration = Duration::from_millis(500);
const CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// Closed connections of this host that still hold a port, by their remote address.
///
/// # Errors
/// An unreadable table of the kernel.
pub(super) fn count_held_ports(is_remote: impl Fn(SocketAddr) -> bool) -> std::io::Result<usize> {
    let mut table = std::fs::read_to_string("/proc/self/net/tcp")?;
    match std::fs::read_to_string("/proc/self/net/tcp6") {
        Ok(tcp6_table) => table.push_str(&tcp6_table),
        // A kernel without IPv6.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    Ok(closed_connections(&table).filter(|&remote| is_remote(remote)).count())
}

/// The remote addresses of connections closed on this side, in a table of the kernel.
fn closed_connections(table: &str) -> impl Iterator<Item = SocketAddr> {
    table.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let (remote, state) = (words.nth(2)?, words.next()?);
        if CLOSED_STATES.contains(&state) { parse_address(remote) } else { None }
    })
}

/// An address as the kernel writes it: words of 32 bits as they lie in memory, and the port, in hexadecimal.
fn parse_address(text: &str) -> Option<SocketAddr> {
    let (words, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |start: usize| Some(u32::from_str_radix(words.get(start..start + 8)?, 16).ok()?.to_ne_bytes());
    let ip: IpAddr = match words.len() {
        8 => word(0)?.into(),
        32 => {
            let mut octets = [0; 16];
            for (number, chunk) in octets.chunks_exact_mut(4).enumerate() {
                chunk.copy_from_slice(&word(8 * number)?);
            }
            Ipv6Addr::from(octets).to_canonical()
        }
        _ => return None,
    };
    Some((ip, port).into())
}

/// How many closed connections to an address still hold a port once the last resets have had time to come, beyond this many
/// before: another program may have had connections to it within the last minute.
///
/// # Errors
/// An unreadable table of the kernel.
pub(super) fn count_left_behind(address: SocketAddr, before: usize) -> std::io::Result<usize> {
    let start = Instant::now();
    loop {
        let ports_left = count_held_ports(|remote| remote == address)?.saturating_sub(before);
        if ports_left == 0 || start.elapsed() > RESET_GRACE {
            return Ok(ports_left);
        }
        std::thread::sleep(CHECK_INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn closed_connections_are_found_by_remote() {
        let table = "  sl  local_address rem_address   st tx_queue\n\
                     0: 0100007F:1F90 0100007F:C350 06 00000000:00000000\n\
                     1: 0100007F:1F90 0A00000A:6AB3 05 00000000:00000000\n\
                     2: 0100007F:1F90 0A00000A:6AB3 01 00000000:00000000\n\
                     3: 00000000000000000000000001000000:0016 B80D0120000000000000000001000000:6AB3 06 0:0\n\
                     4: garbage";
        let remotes: Vec<String> = closed_connections(table).map(|remote| remote.to_string()).collect();
        if cfg!(target_endian = "little") {
            assert_eq!(remotes, ["127.0.0.1:50000", "10.0.0.10:27315", "[2001:db8::1]:27315"]);
        }
    }

    #[test]
    fn active_close_holds_port_unless_reset() {
        // An address to which no other test connects, now or within the last minute.
        let listener = TcpListener::bind("127.83.21.5:0").unwrap();
        let address = listener.local_addr().unwrap();
        let [(lingering_client, lingering_server), (reset_client, reset_server)] =
            [(); 2].map(|()| (TcpStream::connect(address).unwrap(), listener.accept().unwrap().0));
        let before = count_held_ports(|remote| remote == address).unwrap();
        drop((lingering_client, reset_client));
        // The kernel's table may miss a line while others open and close connections. A program that another test
        // starts holds copies of both ends until it runs. Later checks have them.
        let start = Instant::now();
        let has_reached = |count: usize, count_ports: &dyn Fn() -> usize| {
            while count_ports() != count {
                if start.elapsed() > Duration::from_secs(10) {
                    return false;
                }
                std::thread::sleep(CHECK_INTERVAL);
            }
            true
        };
        assert!(has_reached(before + 2, &|| count_held_ports(|remote| remote == address).unwrap()));
        kelvin_sys::net::reset_on_close(&reset_server).unwrap();
        drop((lingering_server, reset_server));
        assert!(has_reached(1, &|| count_left_behind(address, before).unwrap()));
    }
}
