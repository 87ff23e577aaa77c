//! Every sender against every receiver, byte for byte, and what happens when one of them fails.

use std::fs::File;
use std::io::{ErrorKind, IoSlice, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use kelvin_sys::mapping::page_bytes;
use kelvin_sys::net::set_buffers;
use kelvin_sys::net::transfer_call::{MoreFollows, TransferRing};
use kelvin_testing::MissingRequirement;
use kelvin_testing::mounted_fs::{FileSystemKind, MountedFs};

use super::*;

/// Pages of a window.
const WINDOW_PAGES: usize = 4;
/// More than any test takes.
const LONG_TIMEOUT: Duration = Duration::from_secs(60);
/// A time after which a peer counts as silent.
const SHORT_TIMEOUT: Duration = Duration::from_millis(20);
const BUFFER: usize = 64 << 10;
/// More than all socket buffers of a connection of [`small_buffer_connection`], and what is read ahead of them.
const LARGE: usize = 8 << 20;

fn connection() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let server = listener.accept().unwrap().0;
    client.set_nodelay(true).unwrap();
    (client, server)
}

/// A connection that holds little.
fn small_buffer_connection() -> (TcpStream, TcpStream) {
    let (client, server) = connection();
    for end in [&client, &server] {
        set_buffers(end, 64 << 10).unwrap();
    }
    (client, server)
}

/// The modes to be had here.
fn modes() -> Vec<Mode> {
    let ring = TransferRing::new(0, 0);
    let is_available = |mode: &Mode| *mode != Mode::Uring || ring.is_ok();
    if let Err(error) = &ring {
        assert!(matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::PermissionDenied), "{error}");
        MissingRequirement::machine(format!("no io_uring: {error}")).report_skip("moving bytes in the mode uring");
    }
    Mode::ALL.iter().copied().filter(is_available).collect()
}

fn senders(buffer: usize, timeout: Duration) -> Vec<SendSetup> {
    let setups = SendMethod::ALL.iter().flat_map(|&method| {
        modes().into_iter().map(move |mode| SendSetup { method, mode, buffer, window: WINDOW_PAGES, timeout })
    });
    setups.filter(|setup| setup.check().is_ok()).collect()
}

fn receivers(buffer: usize, timeout: Duration) -> Vec<ReceiveSetup> {
    let setups = ReceiveMethod::ALL.iter().flat_map(|&method| {
        modes().into_iter().map(move |mode| ReceiveSetup { method, mode, buffer, window: WINDOW_PAGES, timeout })
    });
    setups.filter(|setup| setup.check().is_ok()).collect()
}

/// Bytes that repeat nowhere near.
fn random_bytes(bytes: usize) -> Vec<u8> {
    (0..bytes as u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

fn file_of(content: &[u8]) -> File {
    let file = tempfile::tempfile().unwrap();
    file.write_all_at(content, 0).unwrap();
    file
}

fn content_of(file: &File, range: Range<u64>) -> Vec<u8> {
    let mut content = vec![0; (range.end - range.start) as usize];
    file.read_exact_at(&mut content, range.start).unwrap();
    content
}

/// One range to be moved: where it begins at either end, and its length.
#[derive(Clone, Copy, Debug)]
struct RangeMove {
    source_offset: u64,
    target_offset: u64,
    bytes: u64,
}

/// Lengths around every boundary, from and to the beginning of a file and the middle of a page.
fn test_ranges() -> Vec<RangeMove> {
    let (page, window) = (page_bytes() as u64, (WINDOW_PAGES * page_bytes()) as u64);
    let lengths = [0, 1, page - 1, page, page + 1, window - 1, window, window + 1, 3 * window + 17];
    let offsets = [(0, 0), (5 * page - 7, page + 123)];
    let moves = offsets.into_iter().flat_map(|(source_offset, target_offset)| {
        lengths.map(|bytes| RangeMove { source_offset, target_offset, bytes })
    });
    moves.collect()
}

fn send_moves(path: &mut SendPath, setup: SendSetup, (file, content): (&File, &[u8]), moves: &[RangeMove]) {
    for &RangeMove { source_offset, bytes, .. } in moves {
        let length = bytes.to_le_bytes();
        let parts = [IoSlice::new(&length[..3]), IoSlice::new(&[]), IoSlice::new(&length[3..])];
        let follows = if bytes > 0 { MoreFollows::Yes } else { MoreFollows::No };
        path.socket.write(&parts, follows).unwrap();
        let mut observed = Vec::new();
        let sent = path.transfer(
            file,
            source_offset..source_offset + bytes,
            Some(&mut |part| observed.extend_from_slice(part)),
        );
        assert_eq!(sent.unwrap(), bytes, "{setup:?} from {source_offset}");
        let expected =
            if setup.method.shows_bytes() { &content[source_offset as usize..][..bytes as usize] } else { &[] };
        assert!(observed == expected, "{setup:?} shows {} of {bytes} bytes from {source_offset}", observed.len());
        let mut reply = [0];
        path.socket.fill(&mut reply).unwrap();
        assert_eq!(reply, [7]);
        path.finish().unwrap();
    }
}

fn receive_moves(path: &mut ReceivePath, setup: ReceiveSetup, content: &[u8], moves: &[RangeMove]) {
    let mut file = tempfile::tempfile().unwrap();
    for &RangeMove { source_offset, target_offset, bytes } in moves {
        let mut length = [0; 8];
        path.socket.fill(&mut length).unwrap();
        assert_eq!(u64::from_le_bytes(length), bytes);
        file.set_len(0).unwrap();
        file.set_len(target_offset + bytes).unwrap();
        let mut observed = Vec::new();
        let received = path.transfer(
            &file,
            target_offset..target_offset + bytes,
            Some(&mut |part| observed.extend_from_slice(part)),
        );
        assert_eq!((received.unwrap(), path.moved), (bytes, bytes), "{setup:?} to {target_offset}");
        let expected = &content[source_offset as usize..][..bytes as usize];
        assert!(
            observed == if setup.method.shows_bytes() { expected } else { &[] },
            "{setup:?} {bytes} to {target_offset}"
        );
        let mut file_content = Vec::new();
        std::io::Seek::rewind(&mut file).unwrap();
        file.read_to_end(&mut file_content).unwrap();
        assert!(
            file_content[..target_offset as usize].iter().all(|&byte| byte == 0),
            "{setup:?} writes before {target_offset}"
        );
        assert!(&file_content[target_offset as usize..] == expected, "{setup:?} {bytes} to {target_offset}");
        path.socket.write(&[IoSlice::new(&[7])], MoreFollows::No).unwrap();
    }
}

#[test]
fn every_sender_reaches_every_receiver() {
    let content = random_bytes(20 * page_bytes());
    let (file, moves) = (file_of(&content), test_ranges());
    let meet = |send, receive| {
        let (client, server) = connection();
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut path = ReceivePath::new(server, receive).unwrap();
                receive_moves(&mut path, receive, &content, &moves);
                assert_eq!(path.socket.read(&mut [0]).unwrap(), 0, "{send:?} sends more than it says");
            });
            let mut path = SendPath::new(client, send).unwrap();
            send_moves(&mut path, send, (&file, &content), &moves);
        });
    };
    // Beside each other, since nearly all of the time one end waits for the other.
    thread::scope(|scope| {
        for buffer in [512, BUFFER] {
            for send in senders(buffer, LONG_TIMEOUT) {
                let meet = &meet;
                scope
                    .spawn(move || receivers(buffer, LONG_TIMEOUT).into_iter().for_each(|receive| meet(send, receive)));
            }
        }
    });
}

#[test]
fn path_can_be_reconnected() {
    let content = random_bytes(20 * page_bytes());
    let file = file_of(&content);
    let moves = test_ranges();
    // Each sender with one receiver of its mode and each receiver with one sender: what a connection leaves behind is its own.
    let mut pairs: Vec<(SendSetup, ReceiveSetup)> = Vec::new();
    for send in senders(BUFFER, LONG_TIMEOUT) {
        pairs.extend(
            receivers(BUFFER, LONG_TIMEOUT).into_iter().filter(|receive| receive.mode == send.mode).map(|r| (send, r)),
        );
    }
    for (send, receive) in pairs {
        let (clients, servers): (Vec<_>, Vec<_>) = (0..3).map(|_| connection()).unzip();
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut servers = servers.into_iter();
                let mut path = ReceivePath::new(servers.next().unwrap(), receive).unwrap();
                receive_moves(&mut path, receive, &content, &moves[..9]);
                for server in servers {
                    path.reconnect(server).unwrap();
                    receive_moves(&mut path, receive, &content, &moves[9..]);
                }
            });
            let mut clients = clients.into_iter();
            let mut path = SendPath::new(clients.next().unwrap(), send).unwrap();
            send_moves(&mut path, send, (&file, &content), &moves[..9]);
            for client in clients {
                path.reconnect(client).unwrap();
                send_moves(&mut path, send, (&file, &content), &moves[9..]);
            }
        });
    }
}

/// What arrives until the end of the stream.
fn read_to_end(mut stream: &TcpStream) -> Vec<u8> {
    let mut arrived = Vec::new();
    stream.read_to_end(&mut arrived).unwrap();
    arrived
}

#[test]
fn short_file_is_sent_to_its_end() {
    let content = random_bytes(5 * page_bytes() + 11);
    let (file, length) = (file_of(&content), content.len() as u64);
    for setup in senders(BUFFER, LONG_TIMEOUT).into_iter().chain(senders(512, LONG_TIMEOUT)) {
        for range in [0..length + 1, 17..10 * length, length..length + 5, length + 9..length + 10] {
            let (client, server) = connection();
            let mut path = SendPath::new(client, setup).unwrap();
            let expected = &content[(range.start as usize).min(content.len())..];
            let mut observed = Vec::new();
            let sent = path.transfer(&file, range.clone(), Some(&mut |part| observed.extend_from_slice(part))).unwrap();
            path.socket.stream().unwrap().shutdown(Shutdown::Write).unwrap();
            assert_eq!((sent, path.moved), (expected.len() as u64, sent), "{setup:?} {range:?}");
            assert!(read_to_end(&server) == expected, "{setup:?} {range:?}");
            assert!(observed.is_empty() || observed == expected, "{setup:?} {range:?}");
        }
    }
}

/// Sends a large file, which `truncate` makes shorter when its first bytes have arrived: what came of it, and what arrived.
fn send_truncated(setup: SendSetup, is_observed: bool, length: u64) -> (std::io::Result<u64>, u64, Vec<u8>) {
    let file = file_of(&random_bytes(LARGE));
    let (client, server) = small_buffer_connection();
    thread::scope(|scope| {
        let receiving = scope.spawn(|| {
            let mut arrived = vec![0; BUFFER];
            (&server).read_exact(&mut arrived).unwrap();
            file.set_len(length).unwrap();
            arrived.extend(read_to_end(&server));
            arrived
        });
        let mut path = SendPath::new(client, setup).unwrap();
        let mut check_part = |part: &[u8]| assert!(!part.is_empty());
        let observer: ByteObserver<'_> = if is_observed { Some(&mut check_part) } else { None };
        let sent = path.transfer(&file, 0..LARGE as u64, observer);
        let moved = path.moved;
        drop(path);
        (sent, moved, receiving.join().unwrap())
    })
}

#[test]
fn file_truncated_ahead_ends_early() {
    // Further ahead than anything is read before it is sent: 4 MiB.
    let (content, length) = (random_bytes(LARGE), LARGE as u64 / 4 * 3 + 5);
    for (setup, is_observed) in
        senders(BUFFER, LONG_TIMEOUT).into_iter().flat_map(|setup| [(setup, true), (setup, false)])
    {
        let (sent, _, arrived) = send_truncated(setup, is_observed, length);
        assert_eq!(sent.unwrap(), length, "{setup:?}");
        assert!(arrived == content[..length as usize], "{setup:?}");
    }
}

#[test]
fn file_truncated_behind_ends_send_only() {
    let content = random_bytes(LARGE);
    for (setup, is_observed) in
        senders(BUFFER, LONG_TIMEOUT).into_iter().flat_map(|setup| [(setup, true), (setup, false)])
    {
        // The last page of a mapping may be half gone when it is sent.
        let setup = SendSetup { window: 64, ..setup };
        let (sent, moved, arrived) = send_truncated(setup, is_observed, 0);
        match sent {
            Ok(sent) => assert!(sent < LARGE as u64, "{setup:?}"),
            Err(error) => {
                assert!(is_observed && setup.method == SendMethod::Mmap, "{setup:?}: {error}");
                assert_eq!(error.to_string(), "the file was truncated while its bytes were read");
            }
        }
        assert_eq!(moved, arrived.len() as u64, "{setup:?}");
        let certain_bytes = if setup.method == SendMethod::Mmap { BUFFER } else { arrived.len() };
        assert!(arrived[..certain_bytes] == content[..certain_bytes], "{setup:?}");
    }
}

#[test]
fn lost_peer_is_a_send_error() {
    let file = file_of(&random_bytes(LARGE));
    for setup in senders(BUFFER, LONG_TIMEOUT) {
        let (client, server) = small_buffer_connection();
        thread::scope(|scope| {
            scope.spawn(|| {
                (&server).read_exact(&mut [0; BUFFER]).unwrap();
                drop(server);
            });
            let mut path = SendPath::new(client, setup).unwrap();
            let error = path.transfer(&file, 0..LARGE as u64, None).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset), "{setup:?}: {error}");
            assert!(path.moved < LARGE as u64, "{setup:?}");
        });
    }
}

#[test]
fn early_end_keeps_received_bytes() {
    let content = random_bytes(50_000);
    for setup in receivers(BUFFER, LONG_TIMEOUT).into_iter().chain(receivers(512, LONG_TIMEOUT)) {
        let (mut client, server) = connection();
        client.write_all(&content).unwrap();
        drop(client);
        let mut path = ReceivePath::new(server, setup).unwrap();
        path.socket.fill(&mut [0; 1000]).unwrap();
        let file = tempfile::tempfile().unwrap();
        file.set_len(100_000).unwrap();
        assert_eq!(path.transfer(&file, 10..100_000, None).unwrap(), 49_000, "{setup:?}");
        assert!(content_of(&file, 10..49_010) == content[1000..], "{setup:?}");
        assert_eq!(path.socket.read(&mut [0]).unwrap(), 0, "{setup:?}");
        assert_eq!(path.socket.fill(&mut [0]).unwrap_err().kind(), ErrorKind::UnexpectedEof, "{setup:?}");
    }
}

#[test]
fn nonreading_peer_times_out() {
    let file = file_of(&random_bytes(LARGE));
    for setup in senders(BUFFER, SHORT_TIMEOUT) {
        let (client, server) = small_buffer_connection();
        let mut path = SendPath::new(client, setup).unwrap();
        let error = path.transfer(&file, 0..LARGE as u64, None).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{setup:?}: {error}");
        let moved = path.moved;
        drop(path);
        assert_eq!(read_to_end(&server).len() as u64, moved, "{setup:?}: it is known what has gone out");
    }
}

#[test]
fn stalled_framing_times_out() {
    for setup in senders(BUFFER, SHORT_TIMEOUT) {
        let (client, _server) = small_buffer_connection();
        let mut path = SendPath::new(client, setup).unwrap();
        assert_eq!(path.socket.read(&mut [0]).unwrap_err().kind(), ErrorKind::TimedOut, "{setup:?}");
        let error = path.socket.write(&[IoSlice::new(&vec![1; LARGE])], MoreFollows::No).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{setup:?}: {error}");
    }
}

#[test]
fn silent_peer_times_out() {
    for setup in receivers(BUFFER, SHORT_TIMEOUT) {
        let (mut client, server) = connection();
        let mut path = ReceivePath::new(server, setup).unwrap();
        let file = tempfile::tempfile().unwrap();
        file.set_len(1000).unwrap();
        assert_eq!(path.socket.fill(&mut [0]).unwrap_err().kind(), ErrorKind::TimedOut, "{setup:?}");
        client.write_all(&[9; 100]).unwrap();
        let error = path.transfer(&file, 0..1000, None).unwrap_err();
        assert_eq!((error.kind(), path.moved), (ErrorKind::TimedOut, 100), "{setup:?}: {error}");
        assert_eq!(content_of(&file, 0..100), [9; 100], "{setup:?}");
        client.write_all(&[8; 100]).unwrap();
        let error = path.socket.fill(&mut [0; 1000]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{setup:?}: {error}");
    }
}

#[test]
fn full_target_is_an_error_and_stream_continues() {
    let memory = match MountedFs::new(FileSystemKind::Tmpfs, &std::env::temp_dir()) {
        Ok(mounted) => mounted,
        Err(missing) => return missing.report_skip("receiving into a file system without space"),
    };
    let content = random_bytes(LARGE);
    let free_bytes = kelvin_sys::fs::space(&memory.path()).unwrap().available_bytes as usize;
    File::create(memory.path().join("filler")).unwrap().write_all(&vec![1; free_bytes - LARGE / 2]).unwrap();
    for setup in receivers(BUFFER, LONG_TIMEOUT) {
        let (mut client, server) = connection();
        let name = memory.path().join("target");
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&name).unwrap();
        file.set_len(LARGE as u64).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                client.write_all(&content).unwrap();
                client.write_all(b"what follows").unwrap();
            });
            let mut path = ReceivePath::new(server, setup).unwrap();
            let error = path.transfer(&file, 0..LARGE as u64, None).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::StorageFull, "{setup:?}: {error}");
            let remaining = LARGE as u64 - path.moved;
            path.socket.fill(&mut vec![0; remaining as usize]).unwrap();
            let mut next = [0; 12];
            path.socket.fill(&mut next).unwrap();
            assert_eq!(&next, b"what follows", "{setup:?}");
        });
    }
}

#[test]
fn short_mapped_target_is_an_error() {
    for setup in receivers(BUFFER, LONG_TIMEOUT).into_iter().filter(|setup| setup.method == ReceiveMethod::Mmap) {
        let (mut client, server) = connection();
        client.write_all(&[9; 100]).unwrap();
        let file = tempfile::tempfile().unwrap();
        file.set_len(99).unwrap();
        let mut path = ReceivePath::new(server, setup).unwrap();
        let error = path.transfer(&file, 0..100, None).unwrap_err();
        assert_eq!((error.kind(), path.moved), (ErrorKind::UnexpectedEof, 0), "{setup:?}: {error}");
        assert_eq!(path.transfer(&file, 0..99, None).unwrap(), 99);
    }
}

#[test]
fn truncated_mapped_target_is_an_error() {
    let cases = [false, true];
    let setups = receivers(512, LONG_TIMEOUT).into_iter().filter(|setup| setup.method == ReceiveMethod::Mmap);
    for (setup, is_observed) in setups.flat_map(|setup| cases.map(|is_observed| (setup, is_observed))) {
        let (mut client, server) = connection();
        let file = tempfile::tempfile().unwrap();
        let bytes = 3 * WINDOW_PAGES * page_bytes();
        file.set_len(bytes as u64).unwrap();
        let (sender, receiver) = channel();
        thread::scope(|scope| {
            scope.spawn(|| {
                client.write_all(&random_bytes(page_bytes())).unwrap();
                // It has received some, and so has its first window.
                sender.send(()).unwrap();
                while content_of(&file, 1..2) != random_bytes(2)[1..] {
                    thread::yield_now();
                }
                file.set_len(0).unwrap();
                // The receiver ends as soon as it notices, perhaps before it has taken all of this.
                let _ = client.write_all(&random_bytes(bytes));
                client
            });
            receiver.recv().unwrap();
            let mut path = ReceivePath::new(server, setup).unwrap();
            let mut check_part = |part: &[u8]| assert!(!part.is_empty());
            let observer: ByteObserver<'_> = if is_observed { Some(&mut check_part) } else { None };
            let error = path.transfer(&file, 0..bytes as u64, observer).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "{setup:?}: {error}");
        });
    }
}

#[test]
fn zero_copy_completions_are_counted() {
    let content = random_bytes(3 * BUFFER + 1);
    let file = file_of(&content);
    for setup in senders(BUFFER, LONG_TIMEOUT) {
        let (client, server) = connection();
        thread::scope(|scope| {
            let receiving = scope.spawn(|| read_to_end(&server));
            let mut path = SendPath::new(client, setup).unwrap();
            path.transfer(&file, 0..content.len() as u64, None).unwrap();
            path.finish().unwrap();
            let IoCounts { system_calls, waits, zero_copied, copied } = path.socket.counts;
            assert!(system_calls > 0 && waits <= system_calls, "{setup:?}");
            // Loopback delivers the bytes to the receiver's socket, so it must copy them.
            let min_copied = if setup.method == SendMethod::ZeroCopy { 4 } else { 0 };
            assert!(
                zero_copied == 0 && copied >= min_copied && (min_copied > 0 || copied == 0),
                "{setup:?}: {zero_copied} {copied}"
            );
            drop(path);
            assert!(receiving.join().unwrap() == content, "{setup:?}");
        });
    }
}

#[test]
fn invalid_setup_makes_no_path() {
    let (client, server) = connection();
    let (mode, buffer, window, timeout) = (Mode::Uring, BUFFER, WINDOW_PAGES, LONG_TIMEOUT);
    let send = SendPath::new(client, SendSetup { method: SendMethod::Sendfile, mode, buffer, window, timeout });
    assert_eq!(send.err().unwrap().kind(), ErrorKind::InvalidInput);
    let mode = Mode::Blocking;
    let receive =
        ReceivePath::new(server, ReceiveSetup { method: ReceiveMethod::Uring, mode, buffer, window, timeout });
    assert_eq!(receive.err().unwrap().to_string(), "the method uring waits in its ring: use it with --wait uring");
}
