//! Every sender to every receiver, byte for byte, and what is sent to hostile ends.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use kelvin_sys::mapping::page_bytes;
use tempfile::TempDir;

use super::*;
use crate::Result;
use crate::datapath::{Mode, ReceiveMethod, ReceiveSetup, SendMethod, SendSetup};

/// More than any test takes.
const LONG_TIMEOUT: Duration = Duration::from_secs(60);
const WINDOW_PAGES: usize = 4;
const LARGE_LIMITS: RawReceiveLimits = RawReceiveLimits { files: 100, bytes: 1 << 30 };

fn send_options(method: SendMethod, connection: ConnectionLifetime) -> RawSendOptions {
    let setup = SendSetup { method, mode: Mode::Blocking, buffer: 512, window: WINDOW_PAGES, timeout: LONG_TIMEOUT };
    RawSendOptions { setup, connection, reply: false, digest: false }
}

fn receive_options(method: ReceiveMethod, connection: ConnectionLifetime) -> RawReceiveOptions {
    let setup = ReceiveSetup { method, mode: Mode::Blocking, buffer: 512, window: WINDOW_PAGES, timeout: LONG_TIMEOUT };
    RawReceiveOptions { setup, connection, limits: LARGE_LIMITS }
}

fn listener() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").unwrap()
}

/// Files of lengths around every boundary, one of which is read-only.
fn files(directory: &Path) -> Vec<PathBuf> {
    let (page, window) = (page_bytes(), WINDOW_PAGES * page_bytes());
    let lengths = [0, 1, 511, 512, page - 1, page, page + 1, window, window + 1, 3 * window + 17];
    let make_file = |(number, length): (usize, usize)| {
        let path = directory.join(format!("file {number}"));
        let content: Vec<u8> =
            (0..length as u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        fs::write(&path, content).unwrap();
        let mode = if number == 3 { 0o400 } else { 0o600 };
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    };
    lengths.into_iter().enumerate().map(make_file).collect()
}

/// What is in the files of a directory, by name.
fn content(directory: &Path) -> Vec<(String, u32, Vec<u8>)> {
    let mut entries: Vec<_> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
            (entry.file_name().into_string().unwrap(), mode, fs::read(entry.path()).unwrap())
        })
        .collect();
    entries.sort();
    entries
}

fn transfer_files(
    files: &[PathBuf],
    options: (&RawSendOptions, &RawReceiveOptions),
) -> (TempDir, RawTotals, RawTotals, Vec<u64>) {
    let (target_directory, listener) = (tempfile::tempdir().unwrap(), listener());
    let address = listener.local_addr().unwrap();
    let (sent, (received, reported_lengths)) = thread::scope(|scope| {
        let directory = target_directory.path();
        let receiver = scope.spawn(move || {
            let mut reported_lengths = Vec::new();
            let received = receive(&listener, directory, options.1, &mut |arrived| {
                // It has its length when it is reported.
                reported_lengths.push(fs::metadata(arrived).unwrap().len());
            });
            (received, reported_lengths)
        });
        (send(files, address, options.0, |_| Ok(())), receiver.join().unwrap())
    });
    (target_directory, sent.unwrap(), received.unwrap(), reported_lengths)
}

#[test]
fn files_arrive_intact_by_every_method() {
    let source_directory = tempfile::tempdir().unwrap();
    let files = files(source_directory.path());
    let expected = content(source_directory.path());
    let lengths: Vec<u64> = expected.iter().map(|(.., bytes)| bytes.len() as u64).collect();
    let senders = SendMethod::ALL.iter().filter(|&&method| method != SendMethod::Uring);
    let receivers = || ReceiveMethod::ALL.iter().filter(|&&method| method != ReceiveMethod::Uring);
    for (&send, &receive) in senders.flat_map(|send| receivers().map(move |receive| (send, receive))) {
        for connection in [ConnectionLifetime::PerFile, ConnectionLifetime::Persistent] {
            for (reply, digest) in [(false, false), (true, false), (false, true), (true, true)] {
                let options = RawSendOptions { reply, digest, ..send_options(send, connection) };
                let (target_directory, sent, received, reported_lengths) =
                    transfer_files(&files, (&options, &receive_options(receive, connection)));
                assert!(content(target_directory.path()) == expected, "{options:?} to {receive}");
                assert_eq!(reported_lengths, lengths);
                let totals = (files.len() as u64, lengths.iter().sum());
                assert_eq!([(sent.files, sent.bytes), (received.files, received.bytes)], [totals; 2]);
                assert!(sent.counts.system_calls > 0 && received.counts.system_calls > 0);
            }
        }
    }
}

/// What a receiver of at most two files and 1000 bytes answers to these bytes, and what it leaves.
fn receive_bytes(bytes: &[u8]) -> (Result<RawTotals>, Vec<String>) {
    let (directory, listener) = (tempfile::tempdir().unwrap(), listener());
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    client.write_all(bytes).unwrap();
    client.shutdown(std::net::Shutdown::Write).unwrap();
    let limits = RawReceiveLimits { files: 2, bytes: 1000 };
    let options =
        RawReceiveOptions { limits, ..receive_options(ReceiveMethod::ReadWrite, ConnectionLifetime::Persistent) };
    let outcome = receive(&listener, directory.path(), &options, &mut |_| {});
    let remaining = content(directory.path()).into_iter().map(|(name, ..)| name).collect();
    (outcome, remaining)
}

fn file(name: &[u8], size: u64, content: &[u8]) -> Vec<u8> {
    let header = RawHeader::File { name: name.len() as u16, mode: 0o644, size, digest: false, reply: false };
    [&header.to_bytes()[..], name, content].concat()
}

#[test]
fn hostile_sender_leaves_only_whole_files() {
    let end = RawHeader::End.to_bytes();
    let stream = [&file(b"a", 3, b"abc")[..], &file(b"b", 0, b""), &end].concat();
    let (outcome, remaining) = receive_bytes(&stream);
    assert_eq!((outcome.unwrap().bytes, remaining), (3, vec!["a".to_owned(), "b".to_owned()]));
    for name in [&b"../a"[..], b"/etc/a", b"..", b".", b"a/b", b"a\0b"] {
        let (outcome, remaining) = receive_bytes(&file(name, 3, b"abc"));
        assert!(matches!(outcome, Err(Error::ProtocolViolation(_))) && remaining.is_empty(), "{name:?}: {outcome:?}");
    }
    // A size that lies, more bytes and more files than are taken, an end without a marker, a name twice.
    let remaining_after = |bytes: &[u8]| {
        let (outcome, remaining) = receive_bytes(bytes);
        assert!(outcome.is_err(), "{outcome:?}");
        remaining
    };
    assert!(remaining_after(&file(b"a", 4, b"abc")).is_empty());
    assert!(remaining_after(&file(b"a", 1001, &[0; 1001])).is_empty());
    assert!(remaining_after(&file(b"a", u64::MAX, b"abc")).is_empty());
    assert_eq!(remaining_after(&[file(b"a", 600, &[0; 600]), file(b"b", 600, &[0; 600])].concat()), ["a"]);
    assert_eq!(remaining_after(&[file(b"a", 0, b""), file(b"b", 0, b""), file(b"c", 0, b"")].concat()), ["a", "b"]);
    assert_eq!(remaining_after(&file(b"a", 3, b"abc")), ["a"]);
    assert_eq!(remaining_after(&[file(b"a", 3, b"abc"), file(b"a", 3, b"xyz")].concat()), ["a"]);
    assert!(remaining_after(b"").is_empty() && remaining_after(&end[..23]).is_empty());
}

#[test]
fn existing_symlink_is_not_followed() {
    let (victim_directory, target_directory) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let victim = victim_directory.path().join("victim");
    fs::write(&victim, "as it was").unwrap();
    std::os::unix::fs::symlink(&victim, target_directory.path().join("a")).unwrap();
    let listener = listener();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    client.write_all(&file(b"a", 3, b"abc")).unwrap();
    let options = receive_options(ReceiveMethod::ReadWrite, ConnectionLifetime::Persistent);
    assert!(matches!(receive(&listener, target_directory.path(), &options, &mut |_| {}), Err(Error::File(_))));
    assert_eq!(fs::read(&victim).unwrap(), b"as it was");
}

#[test]
fn wrong_digest_discards_file() {
    let header = RawHeader::File { name: 1, mode: 0o644, size: 3, digest: true, reply: false };
    let stream_with_digest =
        |digest: &[u8]| [&header.to_bytes()[..], b"aabc", digest, &RawHeader::End.to_bytes()].concat();
    let (outcome, remaining) = receive_bytes(&stream_with_digest(crate::wire::hash(b"abc").as_bytes()));
    assert!(outcome.is_ok() && remaining == ["a"]);
    let (outcome, remaining) = receive_bytes(&stream_with_digest(crate::wire::hash(b"abd").as_bytes()));
    assert!(matches!(outcome, Err(Error::DigestMismatch)) && remaining.is_empty());
}

#[test]
fn wrong_reply_is_an_error() {
    let source_directory = tempfile::tempdir().unwrap();
    let files = files(source_directory.path());
    let options = RawSendOptions { reply: true, ..send_options(SendMethod::ReadWrite, ConnectionLifetime::Persistent) };
    let send_with_reply = |answer: &'static [u8]| {
        let listener = listener();
        let address = listener.local_addr().unwrap();
        let receiver = thread::spawn(move || {
            let mut server = listener.accept().unwrap().0;
            server.read_exact(&mut [0; HEADER_BYTES]).unwrap();
            server.write_all(answer).unwrap();
        });
        let outcome = send(&files[..2], address, &options, |_| Ok(()));
        receiver.join().unwrap();
        outcome
    };
    assert!(matches!(send_with_reply(b"?"), Err(Error::ProtocolViolation(_) | Error::Connection(_))));
    assert!(matches!(send_with_reply(b""), Err(Error::Connection(_))));
}

#[test]
fn socket_is_prepared_before_connect() {
    let listener = listener();
    listener.set_nonblocking(true).unwrap();
    let options = send_options(SendMethod::ReadWrite, ConnectionLifetime::Persistent);
    let outcome = send(&[], listener.local_addr().unwrap(), &options, |_| Err(std::io::Error::other("not ready")));
    assert!(outcome.unwrap_err().to_string().contains("not ready"));
    assert_eq!(listener.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock, "nobody has connected");
}

#[test]
fn remote_address_is_refused() {
    let options = send_options(SendMethod::ReadWrite, ConnectionLifetime::Persistent);
    // 192.0.2.0/24 is for documentation (RFC 5737).
    let outcome = send(&[], "192.0.2.1:7".parse().unwrap(), &options, |_| Ok(()));
    let why = outcome.unwrap_err().to_string();
    assert_eq!(why, "192.0.2.1:7 is another host: what is not encrypted stays on this one");
}

const FULL: RawHeader = RawHeader::File { name: 255, mode: 0o754, size: u64::MAX - 1, digest: true, reply: true };

#[test]
fn header_bytes_are_fixed() {
    let header = RawHeader::File { name: 5, mode: 0o644, size: 0x0102_0304_0506_0708, digest: true, reply: false };
    assert_eq!(&header.to_bytes(), b"kfil\x01\0\x05\0\xa4\x01\0\0\0\0\0\0\x08\x07\x06\x05\x04\x03\x02\x01");
    assert_eq!(&RawHeader::End.to_bytes()[..8], b"kend\0\0\0\0");
    for header in [header, FULL, RawHeader::End] {
        assert_eq!(RawHeader::from_bytes(&header.to_bytes()).unwrap(), header);
    }
}

#[test]
fn invalid_header_is_refused() {
    let changed = |index: usize, byte: u8| {
        let mut bytes = FULL.to_bytes();
        bytes[index] = byte;
        RawHeader::from_bytes(&bytes)
    };
    for (index, byte) in [(0, b'K'), (3, 0), (4, 4), (5, 1), (7, 1), (9, 2), (11, 0x80), (12, 1), (15, 0xff)] {
        assert!(matches!(changed(index, byte), Err(Error::ProtocolViolation(_))), "{byte} at {index}");
    }
    assert!(matches!(changed(6, 0), Err(Error::ProtocolViolation(_))), "no name");
    let mut end = RawHeader::End.to_bytes();
    end[HEADER_BYTES - 1] = 1;
    assert!(matches!(RawHeader::from_bytes(&end), Err(Error::ProtocolViolation(_))));
    assert!(RawHeader::from_bytes(&[0; HEADER_BYTES]).is_err());
}
