//! What the stages of a transfer cost in CPU time, each done again alone.

use std::fs::File;
use std::io::{Error, Read, Result, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::time::Duration;

use kelvin_sys::cpu_usage::ThreadClock;
use kelvin_sys::net::connect_local_pair;
use kelvin_sys::thread_spawn::ThreadBuilder;

use crate::datapath::{PathMethod, ReceiveMethod, ReceivePath, ReceiveSetup, SendPath, SendSetup};
use crate::message::SessionSettings;
use crate::rate_prediction::StageCosts;
use crate::secure_channel::{FRAME_CONTENT_BYTES, PART_BYTES};
use crate::wire::Hasher;
use crate::wire::cipher::{MAX_CONTENT_BYTES, TAG_BYTES};
use crate::wire::handshake::loopback_pair;

/// How much of each stage is done again: enough to be timed to a few percent, and done in a fraction of a millisecond.
const TIMED_PARTS: usize = 16;
/// Longer no part waits for room in a connection to oneself, or for its bytes.
const MAX_PART_WAIT: Duration = Duration::from_millis(500);
/// Small files that are read or made again, at most.
pub const MAX_TIMED_FILES: usize = 32;

/// CPU time of the calling thread for some work, in picoseconds a byte.
pub(crate) fn picoseconds_per_byte(bytes: usize, work: impl FnOnce() -> Result<()>) -> Result<u64> {
    Ok(cpu_time(work)?.saturating_mul(1000) / bytes.max(1) as u64)
}

/// CPU time of the calling thread for some work, in nanoseconds.
pub(crate) fn cpu_time(work: impl FnOnce() -> Result<()>) -> Result<u64> {
    let clock = ThreadClock::current()?;
    let start = clock.cpu_time()?;
    work()?;
    Ok(clock.cpu_time()?.saturating_sub(start).as_nanos() as u64)
}

/// What the stages between the files cost, at the sender and at the receiver: those that these settings ask for. This many bytes are
/// hashed at once.
pub(crate) fn stage_costs(settings: &SessionSettings, chunk_bytes: usize) -> Result<[StageCosts; 2]> {
    let verify = if settings.verify { hashing_cost(chunk_bytes)? } else { 0 };
    let ciphers = if settings.plain { [0; 2] } else { cipher_costs()? };
    let [sender, receiver] = connection_costs()?;
    let costs = |cipher, connection| StageCosts { verify, cipher, connection, ..StageCosts::default() };
    Ok([costs(ciphers[0], sender), costs(ciphers[1], receiver)])
}

/// What hashing this many bytes at once costs.
fn hashing_cost(chunk_bytes: usize) -> Result<u64> {
    let part = vec![0x5a; PART_BYTES];
    let mut hasher = Hasher::new();
    picoseconds_per_byte(TIMED_PARTS * PART_BYTES, || {
        for _ in 0..TIMED_PARTS {
            for piece in part.chunks(chunk_bytes.max(1)) {
                hasher.update(piece);
            }
        }
        std::hint::black_box(hasher.finalize());
        Ok(())
    })
}

/// What reading a file that was read before costs.
pub(crate) fn reading_cost(file: &File, bytes: u64) -> Result<u64> {
    let mut part = vec![0; PART_BYTES];
    let parts = (bytes / PART_BYTES as u64).min(TIMED_PARTS as u64);
    if parts == 0 {
        return Ok(0);
    }
    picoseconds_per_byte(parts as usize * PART_BYTES, || {
        (0..parts).try_for_each(|number| file.read_exact_at(&mut part, number * PART_BYTES as u64))
    })
}

/// What writing a new file costs.
pub(crate) fn writing_cost(file: &File) -> Result<u64> {
    let part = vec![0x5a; PART_BYTES];
    picoseconds_per_byte(TIMED_PARTS * PART_BYTES, || {
        (0..TIMED_PARTS as u64).try_for_each(|number| file.write_all_at(&part, number * PART_BYTES as u64))
    })
}

/// What sending a file that was read before costs by a method of its own, reading it included.
pub(crate) fn send_method_cost(file: &File, bytes: u64, setup: SendSetup) -> Result<u64> {
    let bytes = bytes.min((TIMED_PARTS * PART_BYTES) as u64);
    if bytes == 0 {
        return Ok(0);
    }
    let (sender, mut receiver) = connected_pair()?;
    let mut path = SendPath::new(sender, SendSetup { timeout: MAX_PART_WAIT, ..setup })?;
    std::thread::scope(|scope| {
        // It ends with the connection, or, where that has failed, when nothing comes.
        let drain = move || while receiver.read(&mut vec![0; PART_BYTES]).is_ok_and(|received| received > 0) {};
        ThreadBuilder::named("receiver").start_in(scope, drain)?;
        let cost = picoseconds_per_byte(bytes as usize, || match path.transfer(file, 0..bytes, None)? {
            sent if sent < bytes => Err(Error::other("the file became shorter")),
            _ => path.finish(),
        });
        drop(path);
        cost
    })
}

/// What receiving into a new file costs by a method of its own, writing it included; and reading it again, if that is to be hashed which
/// the method does not show.
pub(crate) fn receive_method_cost(file: &File, setup: ReceiveSetup, verify: bool) -> Result<u64> {
    let bytes = TIMED_PARTS * PART_BYTES;
    let (mut sender, receiver) = connected_pair()?;
    let mut path = ReceivePath::new(receiver, ReceiveSetup { timeout: MAX_PART_WAIT, ..setup })?;
    if setup.method == ReceiveMethod::Mmap {
        file.set_len(bytes as u64)?;
    }
    let received = std::thread::scope(|scope| {
        // Where it fails, too little comes.
        let fill = move || (0..TIMED_PARTS).try_for_each(|_| sender.write_all(&[0x5a; PART_BYTES]));
        ThreadBuilder::named("sender").start_in(scope, fill)?;
        picoseconds_per_byte(bytes, || match path.transfer(file, 0..bytes as u64, None)? {
            received if received < bytes as u64 => Err(Error::other("too little came")),
            _ => Ok(()),
        })
    })?;
    let is_read_again = verify && !setup.method.shows_bytes();
    Ok(received + if is_read_again { reading_cost(file, bytes as u64)? } else { 0 })
}

/// What encrypting and decrypting cost.
fn cipher_costs() -> Result<[u64; 2]> {
    let (mut sealer, mut opener) = loopback_pair().map_err(Error::other)?;
    const { assert!(FRAME_CONTENT_BYTES <= MAX_CONTENT_BYTES) };
    let (content, mut opened) = (vec![0x5a; FRAME_CONTENT_BYTES], vec![0; FRAME_CONTENT_BYTES + TAG_BYTES]);
    let chunks = TIMED_PARTS * PART_BYTES / FRAME_CONTENT_BYTES;
    let mut sealed = Vec::with_capacity(FRAME_CONTENT_BYTES + TAG_BYTES);
    let (mut seal_time, mut open_time) = (0, 0);
    for _ in 0..chunks {
        sealed.clear();
        seal_time += cpu_time(|| sealer.seal(&content, &mut sealed).map_err(Error::other))?;
        open_time += cpu_time(|| opener.open(&sealed, &mut opened).map(drop).map_err(Error::other))?;
    }
    Ok([seal_time, open_time].map(|time| time * 1000 / (TIMED_PARTS * PART_BYTES) as u64))
}

/// What sending and receiving cost, over a connection of this process to itself.
fn connection_costs() -> Result<[u64; 2]> {
    // One part is in flight, which socket buffers hold; where they are too small for it, the cost stays unknown.
    let (mut sender, mut receiver) = connected_pair()?;
    let (content, mut received) = (vec![0x5a; PART_BYTES], vec![0; PART_BYTES]);
    let (mut send_time, mut receive_time) = (0, 0);
    for _ in 0..TIMED_PARTS {
        send_time += cpu_time(|| sender.write_all(&content))?;
        receive_time += cpu_time(|| receiver.read_exact(&mut received))?;
    }
    Ok([send_time, receive_time].map(|time| time * 1000 / (TIMED_PARTS * PART_BYTES) as u64))
}

/// Both ends of a connection of this process to itself.
fn connected_pair() -> Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let (sender, receiver) = connect_local_pair(&listener, |_| Ok(()))?;
    sender.set_write_timeout(Some(MAX_PART_WAIT))?;
    receiver.set_read_timeout(Some(MAX_PART_WAIT))?;
    sender.set_nodelay(true)?;
    Ok((sender, receiver))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datapath::{Mode, SendMethod};

    #[test]
    fn every_stage_cost_is_measurable() {
        let file = tempfile::tempfile().unwrap();
        let written = writing_cost(&file).unwrap();
        let read = reading_cost(&file, (TIMED_PARTS * PART_BYTES) as u64).unwrap();
        let ([sending, receiving], [sealing, opening]) = (connection_costs().unwrap(), cipher_costs().unwrap());
        let costs = [hashing_cost(PART_BYTES).unwrap(), written, read, sending, receiving, sealing, opening];
        assert!(costs.iter().all(|cost| *cost > 0), "{costs:?}");
        assert_eq!(reading_cost(&file, 5).unwrap(), 0, "a part is read, or nothing");
    }

    /// 2048 calls for what a call can move make the difference, on any machine.
    #[test]
    fn smaller_calls_cost_more() {
        let file = tempfile::tempfile().unwrap();
        writing_cost(&file).unwrap();
        let bytes = (TIMED_PARTS * PART_BYTES) as u64;
        let (mode, window, timeout) = (Mode::Blocking, 256, MAX_PART_WAIT);
        for method in [SendMethod::ReadWrite, SendMethod::Sendfile] {
            let cost =
                |buffer| send_method_cost(&file, bytes, SendSetup { method, mode, buffer, window, timeout }).unwrap();
            assert!(cost(512) > cost(PART_BYTES), "{method}");
        }
        let method = ReceiveMethod::ReadWrite;
        let cost =
            |buffer| receive_method_cost(&file, ReceiveSetup { method, mode, buffer, window, timeout }, false).unwrap();
        assert!(cost(512) > cost(PART_BYTES));
        assert!(hashing_cost(512).unwrap() > 0);
    }

    #[test]
    fn every_method_cost_is_measurable() {
        let file = tempfile::tempfile().unwrap();
        writing_cost(&file).unwrap();
        let (buffer, window, timeout) = (4096, 16, MAX_PART_WAIT);
        let mode = |is_ring| if is_ring { Mode::Uring } else { Mode::Blocking };
        for &method in SendMethod::ALL {
            let setup = SendSetup { method, mode: mode(method == SendMethod::Uring), buffer, window, timeout };
            match send_method_cost(&file, (TIMED_PARTS * PART_BYTES) as u64, setup) {
                Err(error) if method == SendMethod::Uring && error.kind() == std::io::ErrorKind::Unsupported => {}
                cost => assert!(cost.unwrap() > 0, "{method}"),
            }
        }
        for &method in ReceiveMethod::ALL {
            let setup = ReceiveSetup { method, mode: mode(method == ReceiveMethod::Uring), buffer, window, timeout };
            match receive_method_cost(&tempfile::tempfile().unwrap(), setup, true) {
                Err(error) if method == ReceiveMethod::Uring && error.kind() == std::io::ErrorKind::Unsupported => {}
                cost => assert!(cost.unwrap() > 0, "{method}"),
            }
        }
    }
}
