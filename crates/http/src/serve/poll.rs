//! Waiting by poll(2), the portable way: each wait hands the kernel all sockets of the thread, which it looks through one by one.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::serve::error::Result;
use crate::serve::event_loop::{LISTENER_TOKEN, WAKER_TOKEN, WorkerCore};
use crate::serve::readiness::{ReadyClient, ReadyEvent, Selector};
use crate::serve::transport::ClientTransport;

/// How long a thread sleeps where a wait would end at once and again, because of what it can do nothing about.
const RETRY_PAUSE: Duration = Duration::from_millis(1);

/// Whether connections are waited for, and what the last wait returned. What is waited for is found anew each time.
pub struct PollSelector {
    is_listening: bool,
    events: Vec<ReadyEvent>,
}

impl Selector for PollSelector {
    fn new<T>(_: &WorkerCore<ReadyClient<T>>) -> Result<Self> {
        Ok(Self { is_listening: false, events: Vec::new() })
    }

    fn listen<T>(&mut self, _: &WorkerCore<ReadyClient<T>>) -> rustix::io::Result<()> {
        self.is_listening = true;
        Ok(())
    }

    fn stop_listening<T>(&mut self, _: &WorkerCore<ReadyClient<T>>) {
        self.is_listening = false;
    }

    fn add_client(&mut self, _: &OwnedFd, _: usize) -> rustix::io::Result<()> {
        Ok(())
    }

    fn wait<T: ClientTransport>(&mut self, core: &WorkerCore<ReadyClient<T>>, timeout: Duration) -> usize {
        self.events.clear();
        let (mut tokens, mut polled) =
            (vec![WAKER_TOKEN], vec![PollFd::from_borrowed_fd(core.inbox().waker.as_fd(), PollFlags::IN)]);
        if self.is_listening {
            tokens.push(LISTENER_TOKEN);
            polled.push(PollFd::from_borrowed_fd(core.shared.listener.as_fd(), PollFlags::IN));
        }
        // One that is to go on anyway waits for nothing.
        for (number, client) in core.clients.iter().filter(|(_, client)| !client.is_queued) {
            tokens.push(number as u64);
            let flags = if client.waits_to_send() { PollFlags::OUT } else { PollFlags::IN };
            polled.push(PollFd::from_borrowed_fd(client.socket.as_fd(), flags));
        }
        match poll(&mut polled, Timespec::try_from(timeout).ok().as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            // No memory for so many, or a limit that was lowered.
            Err(_) => std::thread::sleep(RETRY_PAUSE),
        }
        // An error hangs up too. Alone it reports a message in the error queue, which is the sampler's, and stays until that takes it.
        let has_message = |descriptor: &PollFd<'_>| descriptor.revents() == PollFlags::ERR;
        let is_ready = |descriptor: &PollFd<'_>| !descriptor.revents().is_empty() && !has_message(descriptor);
        let ready = tokens.iter().zip(&polled).filter(|(_, descriptor)| is_ready(descriptor));
        self.events.extend(ready.map(|(token, descriptor)| ready_event(*token, descriptor.revents())));
        if self.events.is_empty() && polled.iter().any(has_message) {
            std::thread::sleep(RETRY_PAUSE);
        }
        self.events.len()
    }

    fn event(&self, index: usize) -> ReadyEvent {
        self.events[index]
    }
}

fn ready_event(token: u64, flags: PollFlags) -> ReadyEvent {
    ReadyEvent {
        token,
        is_readable: flags.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR),
        has_ended: flags.contains(PollFlags::HUP),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpStream;
    use std::sync::Arc;
    use std::time::Instant;

    use kelvin_sys::net::tx_timestamp;
    use kelvin_sys::poll::wait_readable;
    use rustix::net::{SendFlags, send};

    use super::*;
    use crate::serve::event_loop::SharedState;
    use crate::serve::server::{Server, ServerAccess, ServerSetup};
    use crate::serve::worker_context::WorkerContext;

    const LONG: Duration = Duration::from_secs(30);

    /// A thread that does not run, with a client of number 0 that has sent nothing, and the client's end.
    fn core_with_client() -> (tempfile::TempDir, WorkerCore<ReadyClient>, TcpStream) {
        let top = tempfile::tempdir().unwrap();
        let (any, access) = ("127.0.0.1:0".parse().unwrap(), ServerAccess::default());
        let server = Server::listen(any, top.path(), ServerSetup::with_threads(1), access).unwrap();
        let listener = Arc::clone(&server.service.listener);
        let shared = SharedState::new(Arc::clone(&listener), 1, 9).unwrap();
        let mut core = WorkerCore::new(0, Arc::new(shared), WorkerContext::new(&server.service));
        let far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert!(wait_readable(listener.as_fd(), LONG).unwrap());
        let near: OwnedFd = listener.accept().unwrap().0.into();
        let state = core.context.new_client(&near, None, Instant::now());
        assert_eq!(core.clients.insert(ReadyClient::new(near, state)), 0);
        (top, core, far)
    }

    /// The next events, which may take more waits than one.
    fn next_event(selector: &mut PollSelector, core: &WorkerCore<ReadyClient>) -> ReadyEvent {
        while selector.wait(core, LONG) == 0 {}
        selector.event(0)
    }

    #[test]
    fn requests_and_connections_are_events() {
        let (_top, core, mut far) = core_with_client();
        let mut selector = PollSelector::new(&core).unwrap();
        assert_eq!(selector.wait(&core, Duration::ZERO), 0);
        far.write_all(b"GET").unwrap();
        let readable = ReadyEvent { token: 0, is_readable: true, has_ended: false };
        assert_eq!(next_event(&mut selector, &core), readable);
        assert_eq!(next_event(&mut selector, &core), readable, "for as long as nobody reads it");
        let _another = TcpStream::connect(core.shared.listener.local_addr().unwrap()).unwrap();
        assert_eq!(selector.wait(&core, LONG), 1, "connections are not waited for yet");
        selector.listen(&core).unwrap();
        assert!(wait_readable(core.shared.listener.as_fd(), LONG).unwrap());
        assert_eq!(selector.wait(&core, LONG), 2);
        assert_eq!(selector.event(0).token, LISTENER_TOKEN);
    }

    #[test]
    fn queued_client_is_not_waited_for() {
        let (_top, mut core, mut far) = core_with_client();
        let mut selector = PollSelector::new(&core).unwrap();
        far.write_all(b"GET").unwrap();
        next_event(&mut selector, &core);
        core.clients[0].is_queued = true;
        assert_eq!(selector.wait(&core, Duration::ZERO), 0);
    }

    /// Of the departure of an answer, which is the sampler's to take.
    #[test]
    fn message_in_error_queue_is_no_event() {
        let (_top, core, mut far) = core_with_client();
        let mut selector = PollSelector::new(&core).unwrap();
        let near = &core.clients[0].socket;
        tx_timestamp::enable(near).unwrap();
        send(near, b"answer", SendFlags::empty()).unwrap();
        assert!(wait_readable(near.as_fd(), LONG).unwrap(), "poll reports the message");
        assert_eq!(selector.wait(&core, LONG), 0);
        far.write_all(b"GET").unwrap();
        assert_eq!(next_event(&mut selector, &core), ReadyEvent { token: 0, is_readable: true, has_ended: false });
        assert!(tx_timestamp::last_departure(near).unwrap().is_some(), "it is still there");
    }
}
