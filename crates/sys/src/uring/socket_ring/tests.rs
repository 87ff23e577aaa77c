//! A ring for sockets, with real ones.

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::FileExt;

use super::*;

const MAX_WAIT: Duration = Duration::from_secs(30);

/// A ring; `None`, with a report, where there is none.
fn ring() -> Option<SocketRing<File>> {
    match SocketRing::new() {
        Ok(ring) => Some(ring),
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM | libc::EINVAL)) => {
            kelvin_testing::MissingRequirement::machine(format!("no io_uring: {error}"))
                .report_skip("a ring for sockets");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn event(ring: &mut SocketRing<File>) -> RingEvent {
    loop {
        match ring.next_event() {
            Some(event) => return event,
            None => ring.wait(MAX_WAIT).unwrap(),
        }
    }
}

fn pair() -> (TcpStream, Arc<OwnedFd>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (client, Arc::new(listener.accept().unwrap().0.into()))
}

/// The bytes that the next event received, by this token.
fn received(ring: &mut SocketRing<File>, token: u64) -> Option<Vec<u8>> {
    let event = event(ring);
    assert_eq!(event.token, token);
    let RingOutcome::Received(Ok(chunk)) = event.outcome else { panic!("{event:?}") };
    chunk.map(|chunk| {
        let bytes = ring.bytes(&chunk).to_vec();
        ring.give_back(chunk);
        bytes
    })
}

#[test]
fn timed_receive_is_complete() {
    let Some(mut ring) = ring() else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    crate::net::rx_timestamp::enable(&listener).unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let server: Arc<OwnedFd> = Arc::new(listener.accept().unwrap().0.into());
    ring.receive_with_time(5, &server).unwrap();
    let now = || crate::clock::nanoseconds(libc::CLOCK_REALTIME);
    let mut was_timed = false;
    let mut number = 0_usize;
    // Many more than there are buffers, some of which are full; the kernel begins to keep times some packets after it was asked to.
    while number < 600 || !was_timed {
        number += 1;
        let sent = vec![number as u8; 1 + number * 5 % 3000];
        let before = now();
        client.write_all(&sent).unwrap();
        let mut content = Vec::new();
        while content.len() < sent.len() {
            let event = event(&mut ring);
            if event.is_last {
                // For a moment there was no buffer, or the kernel took turns.
                ring.receive_with_time(5, &server).unwrap();
            }
            let RingOutcome::Received(Ok(Some(chunk))) = event.outcome else { panic!("{event:?}") };
            content.extend_from_slice(ring.bytes(&chunk));
            let timed_read = chunk.timed_read();
            assert!(timed_read.arrival.is_none_or(|arrival| (before..=now()).contains(&arrival)), "{timed_read:?}");
            was_timed |= timed_read.arrival.is_some();
            ring.give_back(chunk);
        }
        assert!(content == sent, "{number}");
    }
    drop(client);
    assert_eq!(received(&mut ring, 5), None);
}

#[test]
fn accept_runs_until_cancelled() {
    let Some(mut ring) = ring() else { return };
    let listener = Arc::new(TcpListener::bind("127.0.0.1:0").unwrap());
    let accept_request = ring.accept(7, &listener).unwrap();
    for _ in 0..3 {
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let event = event(&mut ring);
        let RingOutcome::Accepted(Ok(socket)) = event.outcome else { panic!("{event:?}") };
        assert!(event.token == 7 && !event.is_last);
        assert_eq!(TcpStream::from(socket).peer_addr().unwrap(), client.local_addr().unwrap());
    }
    ring.cancel(accept_request).unwrap();
    let event = event(&mut ring);
    assert!(event.is_last && matches!(event.outcome, RingOutcome::Accepted(Err(_))), "{event:?}");
    // Cancelled twice is cancelled once.
    ring.cancel(accept_request).unwrap();
}

#[test]
fn bytes_arrive_in_order_then_end() {
    let Some(mut ring) = ring() else { return };
    let (mut client, socket) = pair();
    ring.receive(1, &socket).unwrap();
    client.write_all(b"one").unwrap();
    assert_eq!(received(&mut ring, 1).unwrap(), b"one");
    let content: Vec<u8> = (0..3_000_000u32).map(|number| (number >> 3) as u8).collect();
    let (sent, mut received_bytes) = (content.clone(), Vec::new());
    let writing = std::thread::spawn(move || client.write_all(&sent).unwrap());
    while let Some(chunk) = received_or_again(&mut ring, &socket) {
        received_bytes.extend_from_slice(&chunk);
    }
    writing.join().unwrap();
    assert!(received_bytes == content);
}

/// What comes; again after the buffers were all in use.
fn received_or_again(ring: &mut SocketRing<File>, socket: &Arc<OwnedFd>) -> Option<Vec<u8>> {
    loop {
        let RingEvent { is_last, outcome, .. } = event(ring);
        let chunk = match outcome {
            RingOutcome::Received(Ok(chunk)) => chunk?,
            RingOutcome::Received(Err(error)) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                ring.receive(1, socket).unwrap();
                continue;
            }
            other => panic!("{other:?}"),
        };
        if is_last {
            ring.receive(1, socket).unwrap();
        }
        let bytes = ring.bytes(&chunk).to_vec();
        ring.give_back(chunk);
        return Some(bytes);
    }
}

#[test]
fn unreturned_buffers_are_not_reused() {
    let Some(mut ring) = ring() else { return };
    let (mut client, socket) = pair();
    ring.receive(1, &socket).unwrap();
    let mut chunks = Vec::new();
    let error = loop {
        client.write_all(&[chunks.len() as u8]).unwrap();
        match event(&mut ring).outcome {
            RingOutcome::Received(Ok(Some(chunk))) => chunks.push(chunk),
            RingOutcome::Received(Err(error)) => break error,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!((error.raw_os_error(), chunks.len()), (Some(libc::ENOBUFS), 256));
    assert!(chunks.iter().enumerate().all(|(number, chunk)| ring.bytes(chunk) == [number as u8]));
    chunks.into_iter().for_each(|chunk| ring.give_back(chunk));
    ring.receive(2, &socket).unwrap();
    assert_eq!(received(&mut ring, 2).unwrap(), [0]);
}

#[test]
fn file_is_sent_and_full_socket_reported() {
    let Some(mut ring) = ring() else { return };
    let (mut client, socket) = pair();
    let file = crate::mapping::memory_file().unwrap();
    file.write_all_at(b"0123456789", 0).unwrap();
    let range = BufferRange { begin: 2, bytes: 8 };
    ring.read(3, (file.try_clone().unwrap(), 6), (b"> ........".to_vec(), range)).unwrap();
    let RingEvent { token: 3, is_last: true, outcome: RingOutcome::Read(Ok(4), buffer) } = event(&mut ring) else {
        panic!()
    };
    assert_eq!(buffer, b"> 6789....");
    ring.send(4, &socket, (buffer[..6].to_vec(), 1)).unwrap();
    let RingEvent { token: 4, is_last: true, outcome: RingOutcome::Sent(Ok(5), buffer) } = event(&mut ring) else {
        panic!()
    };
    assert_eq!(buffer, b"> 6789");
    let mut received_bytes = [0; 5];
    client.read_exact(&mut received_bytes).unwrap();
    assert_eq!(&received_bytes, b" 6789");
    let error = loop {
        ring.send(5, &socket, (vec![1; 1 << 20], 0)).unwrap();
        match event(&mut ring).outcome {
            RingOutcome::Sent(Ok(_), _) => {}
            RingOutcome::Sent(Err(error), _) => break error,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(error.raw_os_error(), Some(libc::EAGAIN));
    ring.await_ready(6, &socket, Readiness::Write).unwrap();
    let mut drained_bytes = 0;
    client.set_nonblocking(true).unwrap();
    let event = loop {
        drained_bytes += client.read(&mut [0; 1 << 16]).unwrap_or(0);
        ring.wait(Duration::from_millis(1)).unwrap();
        if let Some(event) = ring.next_event() {
            break event;
        }
    };
    assert!(
        drained_bytes > 0
            && matches!(event, RingEvent { token: 6, is_last: true, outcome: RingOutcome::Ready(Ok(())) })
    );
}

#[test]
fn drop_releases_held_resources() {
    let Some(mut ring) = ring() else { return };
    let listener = Arc::new(TcpListener::bind("127.0.0.1:0").unwrap());
    let (mut client, socket) = pair();
    ring.accept(1, &listener).unwrap();
    ring.receive(2, &socket).unwrap();
    ring.await_ready(3, &socket, Readiness::Read).unwrap();
    ring.wait(Duration::ZERO).unwrap();
    drop(ring);
    assert_eq!((Arc::strong_count(&listener), Arc::strong_count(&socket)), (1, 1));
    drop(socket);
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
}

#[test]
fn foreign_thread_submission_fails_cleanly() {
    let Some(mut ring) = ring() else { return };
    let (_client, socket) = pair();
    ring.receive(1, &socket).unwrap();
    ring.wait(Duration::ZERO).unwrap();
    let result = std::thread::spawn(move || ring.wait(Duration::ZERO).map_err(|error| error.raw_os_error()));
    assert_eq!(result.join().unwrap(), Err(Some(libc::EEXIST)));
    // What it held is lost with it, and not given to anybody else.
    assert_eq!(Arc::strong_count(&socket), 2);
}
