//! A process that accepts connections, answers one request on each, and resets it when the client has closed.
//!
//! It waits as a server does, or on a futex. So a call's cost can be separated from that of the server's turn within
//! it.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

use kelvin_harness::ProbeError;
use kelvin_sys::handoff::{HandoffChannel, HandoffMethod, HandoffSide};
use kelvin_sys::net;
use kelvin_sys::partner::{PartnerKind, PartnerStatus, PartnerTask};

use super::link::LINK_TIMEOUT;
use crate::reasons::{OrReason, ProbeResult};

/// Bytes of a request, and of its answer.
const REQUEST_BYTES: usize = 1;

/// A server that accepts connections, answers a request on each, and resets it when the client has closed.
pub(super) trait AcceptServer {
    /// Connects to it.
    fn connect(&self) -> ProbeResult<TcpStream>;
    /// Sends a request over a connection and receives the answer: then it is accepted.
    fn request(&self, connection: &mut TcpStream) -> ProbeResult;
    /// Lets it see that the client has closed.
    fn await_client_close(&self) -> ProbeResult;
}

/// What the accepting process waits for between two steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServerWait {
    /// For connections and for their data, as a server does: the packets wake it.
    AsServer,
    /// For a futex, set when a call has been timed: no packet wakes it.
    OnFutex,
}

/// The accepting process, on this machine.
pub(super) struct LocalAcceptServer {
    address: SocketAddr,
    /// Carries the futex, if it waits for one.
    word: Option<Arc<HandoffChannel>>,
    partner: PartnerTask,
}

impl LocalAcceptServer {
    /// Starts it on a CPU; it listens on the loopback device.
    pub(super) fn start(cpu: u32, wait: ServerWait) -> ProbeResult<Self> {
        let start_error = "cannot start the accepting process";
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).or_fail(start_error)?;
        let address = listener.local_addr().or_fail(start_error)?;
        let word = (wait == ServerWait::OnFutex)
            .then(|| HandoffChannel::new(HandoffMethod::Futex, PartnerKind::Process.scope()));
        let word = word.transpose().or_fail(start_error)?.map(Arc::new);
        let server_word = word.clone();
        let serve = move |board: &PartnerStatus| {
            accept_loop(&listener, server_word.as_deref(), board).inspect_err(|error| {
                board.fail(error);
                // The client may be waiting on the futex: it must see the failure rather than hang.
                let _ = server_word.as_deref().map_or(Ok(()), |word| word.hand_over(HandoffSide::Far));
            })
        };
        let partner = PartnerTask::start(PartnerKind::Process, cpu, serve).or_fail(start_error)?;
        Ok(Self { address, partner, word })
    }

    /// Returns when the server waits on the futex again; at once if it waits for packets.
    fn wait_until_blocked(&self) -> ProbeResult {
        let Some(word) = &self.word else { return Ok(()) };
        word.wait_for_turn(HandoffSide::Near)?;
        self.partner.check().or_fail("the accepting process")?;
        // It has set the futex and is about to wait: on this CPU it does so now.
        std::thread::yield_now();
        Ok(())
    }

    /// What went wrong, in the server or here.
    #[cold]
    fn server_error(&self, call: &str, error: &std::io::Error) -> ProbeError {
        ProbeError::fail(match self.partner.check() {
            Err(failure) => format!("the accepting process: {failure}"),
            Ok(()) => format!("{call}: {error}"),
        })
    }

    /// Ends it.
    pub(super) fn finish(mut self) -> ProbeResult {
        self.partner.stop();
        // It sees that it is to end when it is woken.
        match &self.word {
            Some(word) => word.hand_over(HandoffSide::Near)?,
            None => drop(self.connect()?),
        }
        Ok(self.partner.join()?)
    }
}

impl AcceptServer for LocalAcceptServer {
    #[inline(always)]
    fn connect(&self) -> ProbeResult<TcpStream> {
        TcpStream::connect(self.address).map_err(|error| self.server_error("connect", &error))
    }

    #[inline(always)]
    fn request(&self, connection: &mut TcpStream) -> ProbeResult {
        if let Some(word) = &self.word {
            word.hand_over(HandoffSide::Near)?;
        }
        let mut answer = [0; REQUEST_BYTES];
        let outcome = connection.write_all(&[1; REQUEST_BYTES]).and_then(|()| connection.read_exact(&mut answer));
        outcome.map_err(|error| self.server_error("ask", &error))?;
        self.wait_until_blocked()
    }

    fn await_client_close(&self) -> ProbeResult {
        if let Some(word) = &self.word {
            word.hand_over(HandoffSide::Near)?;
        }
        self.wait_until_blocked()
    }
}

/// The loop of the accepting process: one connection after another.
fn accept_loop(listener: &TcpListener, word: Option<&HandoffChannel>, board: &PartnerStatus) -> kelvin_sys::Result<()> {
    let wait_for_turn = || word.map_or(Ok(()), |word| word.wait_for_turn(HandoffSide::Far));
    let hand_over = || word.map_or(Ok(()), |word| word.hand_over(HandoffSide::Far));
    loop {
        wait_for_turn()?;
        if word.is_some() && board.is_stopping() {
            return Ok(());
        }
        let mut connection = listener.accept()?.0;
        if board.is_stopping() {
            return Ok(());
        }
        connection.set_read_timeout(Some(LINK_TIMEOUT))?;
        // The client has closed in the usual way by then: its FIN is answered by a reset, which frees its port at once instead
        // of after a minute.
        net::reset_on_close(&connection)?;
        let mut request = [0; REQUEST_BYTES];
        connection.read_exact(&mut request)?;
        connection.write_all(&request)?;
        hand_over()?;
        wait_for_turn()?;
        match connection.read(&mut request) {
            Ok(0) => {}
            Ok(_) => return Err(kelvin_sys::Error::other("more than one request arrived over a connection")),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            Err(error) => return Err(error),
        }
        drop(connection);
        hand_over()?;
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use kelvin_sys::usage::{UsageScope, read_usage};

    use super::*;
    use crate::net::held_ports;

    #[test]
    fn connections_are_answered_without_held_ports() {
        for wait in [ServerWait::AsServer, ServerWait::OnFutex] {
            assert_no_port_left(wait);
        }
    }

    fn assert_no_port_left(wait: ServerWait) {
        let cpu = *kelvin_sys::cpu::affinity().unwrap().last().unwrap();
        let server = LocalAcceptServer::start(cpu, wait).unwrap();
        let address = server.address;
        let before = held_ports::count_held_ports(|remote| remote == address).unwrap();
        let mut local_ports = Vec::new();
        for _ in 0..200 {
            let mut connection = server.connect().unwrap();
            server.request(&mut connection).unwrap();
            local_ports.push(connection.local_addr().unwrap().port());
            drop(connection);
            server.await_client_close().unwrap();
        }
        server.finish().unwrap();
        // The last connection, which ended the process, was not accepted and may linger. Under other load the kernel may leave the
        // last resets to ksoftirqd, which waits for a CPU, and its table may have a line twice: later checks have neither. Without
        // resets a minute passes until ports are free.
        let deadline = Instant::now() + Duration::from_secs(20);
        let mut ports_left = held_ports::count_left_behind(address, before).unwrap();
        while ports_left > 1 && Instant::now() < deadline {
            ports_left = held_ports::count_left_behind(address, before).unwrap();
        }
        assert!(ports_left <= 1, "{wait:?}: {ports_left} connections are still closing: {local_ports:?}");
    }

    /// Switches of this thread within 800 calls that make and close connections, with the accepting process on the same CPU.
    fn switches_within_calls(cpu: u32) -> u64 {
        kelvin_sys::cpu::pin(&[cpu]).unwrap();
        let server = LocalAcceptServer::start(cpu, ServerWait::OnFutex).unwrap();
        let switches = || {
            let usage = read_usage(UsageScope::Thread);
            usage.voluntary_switches + usage.involuntary_switches
        };
        let mut total = 0;
        for _ in 0..400 {
            let before = switches();
            let mut connection = server.connect().unwrap();
            total += switches() - before;
            server.request(&mut connection).unwrap();
            let before = switches();
            drop(connection);
            total += switches() - before;
            server.await_client_close().unwrap();
        }
        server.finish().unwrap();
        total
    }

    #[test]
    fn futex_server_is_not_woken_by_packets() {
        let cpu = *kelvin_sys::cpu::affinity().unwrap().last().unwrap();
        // Were it woken, half of these calls and more would include its turn. Others on the machine take the CPU at times.
        let count = || std::thread::spawn(move || switches_within_calls(cpu)).join().unwrap();
        let mut counts = std::iter::repeat_with(count).take(10);
        assert!(counts.any(|switches| switches < 100), "a hundred switches and more within 800 calls, ten times");
    }
}
