//! Waiting in every way, requests that end late or never, and windows.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use super::*;
use crate::mapping::{memory_file, page_bytes};

const LONG_TIMEOUT: Duration = Duration::from_secs(60);
const SHORT_TIMEOUT: Duration = Duration::from_millis(10);
const WAIT_MODES: [SocketWaitMode; 3] = [SocketWaitMode::InCall, SocketWaitMode::Epoll, SocketWaitMode::Signal];

fn connection() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (client, listener.accept().unwrap().0)
}

/// A ring; `None`, with a report, where there is none.
fn ring(slots: usize) -> Option<TransferRing> {
    match TransferRing::new(slots, 512) {
        Ok(ring) => Some(ring),
        Err(error) => {
            assert!(matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::PermissionDenied), "{error}");
            kelvin_testing::MissingRequirement::machine(format!("no io_uring: {error}"))
                .report_skip("requests with a socket");
            None
        }
    }
}

#[test]
fn readable_socket_is_awaited_in_every_mode() {
    for mode in WAIT_MODES {
        let (client, mut server) = connection();
        let mut socket = WaitingSocket::new(client, mode, SHORT_TIMEOUT).unwrap();
        let mut byte = [0];
        let error = TransferCall::Receive(&mut byte).execute(socket.stream()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WouldBlock, "{mode:?}");
        assert!(!socket.wait(SocketEvent::Readable, SHORT_TIMEOUT).unwrap(), "{mode:?}");
        std::thread::scope(|scope| {
            scope.spawn(|| server.write_all(&[7]).unwrap());
            while TransferCall::Receive(&mut byte).execute(socket.stream()).is_err() {
                assert!(socket.wait(SocketEvent::Readable, LONG_TIMEOUT).unwrap(), "{mode:?}");
            }
        });
        assert_eq!(byte, [7], "{mode:?}");
    }
}

#[test]
fn writable_socket_is_awaited_in_every_mode() {
    for mode in WAIT_MODES {
        let (client, mut server) = connection();
        let mut socket = WaitingSocket::new(client, mode, SHORT_TIMEOUT).unwrap();
        let send = |socket: &TcpStream| TransferCall::Send(&[1; 100_000], MoreFollows::No).execute(socket);
        let mut sent = 0;
        while let Ok(count) = send(socket.stream()) {
            sent += count;
        }
        std::thread::scope(|scope| {
            scope.spawn(|| server.read_exact(&mut vec![0; sent]).unwrap());
            assert!(socket.wait(SocketEvent::Writable, LONG_TIMEOUT).unwrap(), "{mode:?}");
        });
        while send(socket.stream()).is_err() {
            assert!(socket.wait(SocketEvent::Writable, LONG_TIMEOUT).unwrap(), "{mode:?}");
        }
    }
}

/// Signals of sockets that this thread holds back.
fn blocked_signals() -> usize {
    // SAFETY: an all-zero set is one, which the call fills; a null set changes nothing.
    unsafe {
        let mut mask: libc::sigset_t = std::mem::zeroed();
        assert_eq!(libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut mask), 0);
        [libc::SIGRTMIN(), libc::SIGIO]
            .iter()
            .filter(|&&signal| libc::sigismember(&raw const mask, signal) == 1)
            .count()
    }
}

#[test]
fn signals_stay_blocked_until_last_socket_drops() {
    let (client, mut server) = connection();
    let (other, _server) = connection();
    assert_eq!(blocked_signals(), 0);
    let first = WaitingSocket::new(client.try_clone().unwrap(), SocketWaitMode::Signal, LONG_TIMEOUT).unwrap();
    let second = WaitingSocket::new(other, SocketWaitMode::Signal, LONG_TIMEOUT).unwrap();
    server.write_all(&[1]).unwrap();
    drop(second);
    assert_eq!(blocked_signals(), 2);
    drop(first);
    assert_eq!(blocked_signals(), 0);
    // A signal that is let through would end the process.
    server.write_all(&[1]).unwrap();
    client.set_nonblocking(false).unwrap();
    (&client).read_exact(&mut [0; 2]).unwrap();
}

#[test]
fn sigio_replaces_unqueueable_signal() {
    let limit = |limit: &libc::rlimit| {
        // SAFETY: the limit outlives the call.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_SIGPENDING, std::ptr::from_ref(limit)) }, 0);
    };
    let mut before = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the limit outlives the call, which fills it.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_SIGPENDING, &raw mut before) }, 0);
    let (client, mut server) = connection();
    let mut socket = WaitingSocket::new(client, SocketWaitMode::Signal, LONG_TIMEOUT).unwrap();
    limit(&libc::rlimit { rlim_cur: 0, ..before });
    server.write_all(&[1]).unwrap();
    let is_woken = socket.wait(SocketEvent::Readable, LONG_TIMEOUT);
    limit(&before);
    assert!(is_woken.unwrap());
}

#[test]
fn unanswered_request_is_cancelled() {
    let Some(mut ring) = ring(2) else { return };
    let (client, mut server) = connection();
    let mut byte = [0];
    let error = ring.execute(TransferCall::Receive(&mut byte), &client, SHORT_TIMEOUT).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    ring.scope(|ring| {
        ring.queue(BufferRequest::Receive(client.as_fd()), 1, 0..512, false);
        assert!(!ring.wait(Some(SHORT_TIMEOUT)).unwrap() && ring.in_flight() == 1 && ring.is_in_use(1));
        // The scope calls it back.
    });
    let Some(Completion::Moved { slot: 1, bytes: Err(error) }) = ring.next_completion() else {
        panic!("another request is done")
    };
    assert!(is_cancelled(&error) && ring.in_flight() == 0 && !ring.is_in_use(1));
    // Nothing of them is left that would take a byte.
    server.write_all(&[7]).unwrap();
    assert_eq!(ring.execute(TransferCall::Receive(&mut byte), &client, LONG_TIMEOUT).unwrap(), 1);
    assert_eq!(byte, [7]);
}

#[test]
fn requests_end_with_their_scope() {
    let Some(mut ring) = ring(2) else { return };
    for is_submitted in [false, true] {
        let (client, _server) = connection();
        ring.scope(|ring| {
            ring.queue(BufferRequest::Receive(client.as_fd()), 0, 0..512, false);
            if is_submitted {
                ring.submit().unwrap();
            }
        });
        assert_eq!((ring.in_flight(), ring.completion_count()), (1, 1), "it has ended, and is yet to be told");
        // Its number is that of the next socket, from which nothing may be taken.
        drop(client);
        let (next, mut server) = connection();
        server.write_all(&[9]).unwrap();
        assert!(matches!(ring.next_completion(), Some(Completion::Moved { slot: 0, bytes: Err(_) })));
        let mut byte = [0];
        assert_eq!(ring.execute(TransferCall::Receive(&mut byte), &next, LONG_TIMEOUT).unwrap(), 1);
        assert_eq!((byte, ring.in_flight()), ([9], 0));
    }
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let (client, _server) = connection();
        ring.scope(|ring| {
            ring.queue(BufferRequest::Receive(client.as_fd()), 1, 0..512, false);
            ring.submit().unwrap();
            panic!("in the scope");
        });
    }));
    assert!(result.is_err() && ring.completion_count() == 1);
}

#[test]
#[should_panic(expected = "is being filled")]
fn buffer_being_filled_is_inaccessible() {
    let (client, _server) = connection();
    let Some(mut ring) = ring(1) else { panic!("it is being filled, had there been a ring") };
    ring.scope(|ring| {
        ring.queue(BufferRequest::Receive(client.as_fd()), 0, 0..512, false);
        ring.buffer(0);
    });
}

#[test]
fn window_maps_successive_parts() {
    let (page, file) = (page_bytes(), memory_file().unwrap());
    file.write_all_at(&[1; 100], 0).unwrap();
    file.write_all_at(&[2; 100], page as u64).unwrap();
    let mut window = FileWindow::reserve(1, PageAccess::Read).unwrap();
    assert_eq!(window.map_part(&file, 0, 10_000_000).unwrap(), page);
    assert_eq!(window.slice(0..100), [1; 100]);
    assert_eq!(window.map_part(&file, page as u64, 100).unwrap(), 100);
    assert_eq!(window.slice(0..100), [2; 100]);
    file.set_len(0).unwrap();
    let (client, _server) = connection();
    let error = TransferCall::SendWindow(&window, 0..100, MoreFollows::No).execute(&client).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EFAULT));
    window.unmap().unwrap();
    assert!(std::panic::catch_unwind(|| window.slice(0..1).len()).is_err(), "nothing is shown");
    assert!(window.map_part(&file, 1, 1).is_err(), "it does not begin at a page");
    assert!(
        FileWindow::reserve(0, PageAccess::Read).is_err() && FileWindow::reserve(usize::MAX, PageAccess::Read).is_err()
    );
}

#[test]
fn interrupted_call_is_retried() {
    let Some(mut ring) = ring(1) else { return };
    let (client, mut server) = connection();
    extern "C" fn ignore_signal(_: libc::c_int) {}
    // SAFETY: the handler does nothing, and no other test sends or awaits this signal.
    let (old, thread) =
        unsafe { (libc::signal(libc::SIGWINCH, ignore_signal as *const () as usize), libc::pthread_self() as usize) };
    assert_ne!(old, libc::SIG_ERR);
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let content: Vec<u8> = (0..4_000_000_u32).map(|number| number as u8).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(std::sync::atomic::Ordering::Acquire) {
                // SAFETY: the thread runs until this one was joined.
                unsafe { libc::pthread_kill(thread as libc::pthread_t, libc::SIGWINCH) };
                std::thread::sleep(Duration::from_micros(50));
            }
        });
        let reader = scope.spawn(|| {
            let mut received = vec![0; content.len()];
            server.read_exact(&mut received).map(|()| received)
        });
        let mut sent = 0;
        let outcome = loop {
            match ring.execute(TransferCall::Send(&content[sent..], MoreFollows::No), &client, LONG_TIMEOUT) {
                Ok(bytes) => sent += bytes,
                Err(error) => break Err(error),
            }
            if sent == content.len() {
                break Ok(());
            }
        };
        is_over.store(true, std::sync::atomic::Ordering::Release);
        drop(client);
        outcome.unwrap();
        assert!(reader.join().unwrap().unwrap() == content, "other bytes have come");
    });
}
