//! A process that accepts connections, answers one request on each, and resets it when the client has closed.
//!
//! It waits as a server does, or on a futex, so that a call's cost can be told from that of the server's turn within it.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

use kelvin_harness::Stop;
use kelvin_sys::net;
use kelvin_sys::partner::{Board, PartnerTask, Task};
use kelvin_sys::shared::Shared;
use kelvin_sys::token::{Channel, Means, Side};

use super::link::STUCK;

/// Bytes of a request, and of its answer.
const REQUEST: usize = 1;

/// A server that accepts connections, answers a request on each, and resets it when the client has closed.
pub(super) trait Accepts {
    /// Connects to it.
    fn connect(&self) -> Result<TcpStream, Stop>;
    /// Sends a request over a connection and receives the answer: then it is accepted.
    fn ask(&self, connection: &mut TcpStream) -> Result<(), Stop>;
    /// Lets it see that the client has closed.
    fn see_the_end(&self) -> Result<(), Stop>;
}

/// What the accepting process waits for between two steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waits {
    /// For connections and for their data, as a server does: the packets wake it.
    AsServer,
    /// For a futex, set when a call has been timed: no packet wakes it.
    OnFutex,
}

/// The accepting process, on this machine.
#[derive(Debug)]
pub(super) struct Accepting {
    address: SocketAddr,
    board: Arc<Shared<Board>>,
    /// Carries the futex, if it waits for one.
    word: Option<Arc<Channel>>,
    partner: Option<PartnerTask>,
}

impl Accepting {
    /// Starts it on a CPU; it listens on the loopback device.
    pub(super) fn start(cpu: u32, waits: Waits) -> Result<Self, Stop> {
        let starting = |error| Stop::fail(format!("cannot start the accepting process: {error}"));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(starting)?;
        let address = listener.local_addr().map_err(starting)?;
        let board = Board::new().map_err(starting)?;
        let word = (waits == Waits::OnFutex).then(|| Channel::new(Means::Futex, Task::Process.scope()));
        let word = word.transpose().map_err(starting)?.map(Arc::new);
        let theirs = word.clone();
        let serve = move |board: &Board| {
            accept_all(&listener, theirs.as_deref(), board).inspect_err(|error| {
                board.fail(error);
                // The client may be waiting on the futex: it must see the failure rather than hang.
                let _ = theirs.as_deref().map_or(Ok(()), |word| word.pass(Side::Far));
            })
        };
        let partner = PartnerTask::start(Task::Process, cpu, &board, serve).map_err(starting)?;
        Ok(Self { address, partner: Some(partner), board, word })
    }

    /// Returns when the server waits on the futex again; at once if it waits for packets.
    fn until_it_waits(&self) -> Result<(), Stop> {
        let Some(word) = &self.word else { return Ok(()) };
        word.take(Side::Near)?;
        self.board.check().map_err(|theirs| Stop::fail(format!("the accepting process: {theirs}")))?;
        // It has set the futex and is about to wait: on this CPU it does so now.
        std::thread::yield_now();
        Ok(())
    }

    /// What went wrong, in the server or here.
    #[cold]
    fn failed(&self, what: &str, error: &std::io::Error) -> Stop {
        match self.board.check() {
            Err(theirs) => Stop::fail(format!("the accepting process: {theirs}")),
            Ok(()) => Stop::fail(format!("{what}: {error}")),
        }
    }

    /// Ends it.
    pub(super) fn finish(mut self) -> Result<(), Stop> {
        self.board.stop();
        // It sees that it is to end when it is woken.
        match &self.word {
            Some(word) => word.pass(Side::Near)?,
            None => drop(self.connect()?),
        }
        self.partner.take().map_or(Ok(()), |partner| partner.join(&self.board).map_err(Stop::from))
    }
}

impl Accepts for Accepting {
    #[inline(always)]
    fn connect(&self) -> Result<TcpStream, Stop> {
        TcpStream::connect(self.address).map_err(|error| self.failed("connect", &error))
    }

    #[inline(always)]
    fn ask(&self, connection: &mut TcpStream) -> Result<(), Stop> {
        if let Some(word) = &self.word {
            word.pass(Side::Near)?;
        }
        let mut answer = [0; REQUEST];
        let asked = connection.write_all(&[1; REQUEST]).and_then(|()| connection.read_exact(&mut answer));
        asked.map_err(|error| self.failed("ask", &error))?;
        self.until_it_waits()
    }

    fn see_the_end(&self) -> Result<(), Stop> {
        if let Some(word) = &self.word {
            word.pass(Side::Near)?;
        }
        self.until_it_waits()
    }
}

/// The loop of the accepting process: one connection after another.
fn accept_all(listener: &TcpListener, word: Option<&Channel>, board: &Board) -> kelvin_sys::Result<()> {
    let taken = || word.map_or(Ok(()), |word| word.take(Side::Far));
    let given = || word.map_or(Ok(()), |word| word.pass(Side::Far));
    loop {
        taken()?;
        if word.is_some() && board.stopping() {
            return Ok(());
        }
        let mut connection = listener.accept()?.0;
        if board.stopping() {
            return Ok(());
        }
        connection.set_read_timeout(Some(STUCK))?;
        // The client has closed in the usual way by then: its FIN is answered by a reset, which frees its port at once instead
        // of after a minute.
        net::reset_on_close(&connection)?;
        let mut request = [0; REQUEST];
        connection.read_exact(&mut request)?;
        connection.write_all(&request)?;
        given()?;
        taken()?;
        match connection.read(&mut request) {
            Ok(0) => {}
            Ok(_) => return Err(kelvin_sys::Error::other("more than one request arrived over a connection")),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            Err(error) => return Err(error),
        }
        drop(connection);
        given()?;
    }
}

#[cfg(test)]
mod tests {
    use kelvin_sys::usage::{Who, usage};

    use super::*;
    use crate::net::ports;

    #[test]
    fn connections_are_answered_and_leave_no_port_behind() {
        for waits in [Waits::AsServer, Waits::OnFutex] {
            leave_no_port_behind(waits);
        }
    }

    fn leave_no_port_behind(waits: Waits) {
        let cpu = *kelvin_sys::cpu::allowed().unwrap().last().unwrap();
        let accepting = Accepting::start(cpu, waits).unwrap();
        let there = accepting.address;
        let before = ports::held(|far| far == there).unwrap();
        let mut own = Vec::new();
        for _ in 0..200 {
            let mut connection = accepting.connect().unwrap();
            accepting.ask(&mut connection).unwrap();
            own.push(connection.local_addr().unwrap().port());
            drop(connection);
            accepting.see_the_end().unwrap();
        }
        accepting.finish().unwrap();
        // The last connection, which ended the process, was not accepted and may linger.
        let left = ports::left_behind(there, before).unwrap();
        assert!(left <= 1, "{waits:?}: {left} connections are still closing: {own:?}");
    }

    /// Switches of this thread within 800 calls that make and close connections, with the accepting process on the same CPU.
    fn switches_within_calls(cpu: u32) -> u64 {
        kelvin_sys::cpu::pin(&[cpu]).unwrap();
        let accepting = Accepting::start(cpu, Waits::OnFutex).unwrap();
        let switches = || {
            let used = usage(Who::Thread);
            used.voluntary_switches + used.involuntary_switches
        };
        let mut timed = 0;
        for _ in 0..400 {
            let before = switches();
            let mut connection = accepting.connect().unwrap();
            timed += switches() - before;
            accepting.ask(&mut connection).unwrap();
            let before = switches();
            drop(connection);
            timed += switches() - before;
            accepting.see_the_end().unwrap();
        }
        accepting.finish().unwrap();
        timed
    }

    #[test]
    fn no_packet_wakes_a_server_that_waits_on_a_futex() {
        let cpu = *kelvin_sys::cpu::allowed().unwrap().last().unwrap();
        // Were it woken, half of these calls and more would include its turn. Others on the machine take the CPU at times.
        let count = || std::thread::spawn(move || switches_within_calls(cpu)).join().unwrap();
        let mut counts = std::iter::repeat_with(count).take(10);
        assert!(counts.any(|switches| switches < 100), "a hundred switches and more within 800 calls, ten times");
    }
}
