//! A process that accepts connections, answers one request on each, and resets it when the other end has closed.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

use kelvin_harness::Stop;
use kelvin_sys::net;
use kelvin_sys::peer::{Board, Peer, Task};
use kelvin_sys::shared::Shared;

use super::link::STUCK;

/// Bytes of a request, and of its answer.
const REQUEST: usize = 1;

/// The process at the other end, on this machine.
#[derive(Debug)]
pub(super) struct Accepting {
    address: SocketAddr,
    board: Arc<Shared<Board>>,
    peer: Option<Peer>,
}

impl Accepting {
    /// Starts it on a CPU; it listens on the loopback device.
    pub(super) fn start(cpu: u32) -> Result<Self, Stop> {
        let starting = |error| Stop::fail(format!("cannot start the accepting end: {error}"));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(starting)?;
        let address = listener.local_addr().map_err(starting)?;
        let board = Board::new().map_err(starting)?;
        let peer = Peer::start(Task::Process, cpu, &board, move |board| accept_all(&listener, board));
        Ok(Self { address, peer: Some(peer.map_err(starting)?), board })
    }

    /// Connects to it.
    #[inline(always)]
    pub(super) fn connect(&self) -> Result<TcpStream, Stop> {
        TcpStream::connect(self.address).map_err(|error| self.failed("connect", &error))
    }

    /// Sends a request over a connection and takes the answer: then it is accepted.
    #[inline(always)]
    pub(super) fn ask(&self, connection: &mut TcpStream) -> Result<(), Stop> {
        let mut answer = [0; REQUEST];
        let asked = connection.write_all(&[1; REQUEST]).and_then(|()| connection.read_exact(&mut answer));
        asked.map_err(|error| self.failed("ask", &error))
    }

    /// What went wrong, there or here.
    #[cold]
    fn failed(&self, what: &str, error: &std::io::Error) -> Stop {
        match self.board.check() {
            Err(theirs) => Stop::fail(format!("the accepting end: {theirs}")),
            Ok(()) => Stop::fail(format!("{what}: {error}")),
        }
    }

    /// Ends it.
    pub(super) fn finish(mut self) -> Result<(), Stop> {
        self.board.stop();
        // It sees that it is to end when it is woken.
        drop(self.connect()?);
        self.peer.take().map_or(Ok(()), |peer| peer.join(&self.board).map_err(Stop::from))
    }
}

/// The life of the accepting process: one connection after another.
fn accept_all(listener: &TcpListener, board: &Board) -> kelvin_sys::Result<()> {
    loop {
        let mut connection = listener.accept()?.0;
        if board.stopping() {
            return Ok(());
        }
        connection.set_read_timeout(Some(STUCK))?;
        // The other end has closed in the usual way by then: its FIN is answered by a reset, so that it need not wait
        // with its port for a minute until nothing of the connection can come any more.
        net::reset_on_close(&connection)?;
        let mut request = [0; REQUEST];
        connection.read_exact(&mut request)?;
        connection.write_all(&request)?;
        match connection.read(&mut request) {
            Ok(0) => {}
            Ok(_) => return Err(kelvin_sys::Error::other("more than one request came over a connection")),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_answered_and_leave_no_port_behind() {
        let cpu = *kelvin_sys::cpu::allowed().unwrap().last().unwrap();
        let accepting = Accepting::start(cpu).unwrap();
        let mut ports = Vec::new();
        for _ in 0..200 {
            let mut connection = accepting.connect().unwrap();
            accepting.ask(&mut connection).unwrap();
            ports.push(connection.local_addr().unwrap().port());
        }
        let port = accepting.address.port();
        accepting.finish().unwrap();
        let waiting = std::fs::read_to_string("/proc/net/tcp").unwrap();
        // Fourth column 06 is TIME_WAIT; addresses are `address:port` in hexadecimal.
        let left = waiting.lines().filter(|line| {
            let mut words = line.split_whitespace();
            let of_ours = words.nth(2).is_some_and(|far| far.ends_with(&format!(":{port:04X}")));
            of_ours && words.next() == Some("06")
        });
        // The last connection, which ended the process, was not accepted and may linger.
        assert!(left.count() <= 1, "connections wait for their end: {ports:?}");
    }
}
