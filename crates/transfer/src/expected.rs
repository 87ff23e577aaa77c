//! The rate that a transfer should have had: from what the stages of each end cost when each is done apart.
//!
//! After a transfer that took long enough, each end does a little of each of its stages again - reads, hashes, encrypts, sends to
//! itself - and counts CPU time. What went by a method of its own goes so again, with the same bytes a call. An end is one thread, so
//! its stages add up; two ends work at the same time, so the slower one is the prediction, or the limit that was set, or the link,
//! where a moment of the transfer showed what that can. Disks are not in it: what they take away is the difference.

use std::fs::File;
use std::io::{Error, Read, Result, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::time::Duration;

use kelvin_sys::busy::ThreadClock;
use kelvin_sys::spawn::Thread;
use kelvin_wire::Hasher;
use kelvin_wire::noise::to_oneself;
use kelvin_wire::sealed::{CONTENT, TAG};
use serde::{Deserialize, Serialize};

use crate::channel::{CHUNK, PART};
use crate::message::Settings;
use crate::moving::{ReceiveMethod, ReceivePath, ReceiveSetup, SendPath, SendSetup};

/// A transfer that took less is not predicted: to do each stage again takes 5 ms, and shall not take more than a hundredth of it.
pub const LEAST: Duration = Duration::from_millis(500);
/// How much of each stage is done again: enough to be timed to a few percent, and done in a fraction of a millisecond.
const PARTS: usize = 16;
/// Longer no part waits for room in a connection to oneself, or for its bytes.
const FULL: Duration = Duration::from_millis(500);
/// Small files that are read or made again, at most.
pub const FILES: usize = 32;
/// How far off a prediction may be: stages that follow each other meet colder caches than the same one repeated, and two ends never
/// overlap wholly; and a processor may be faster when it does one thing alone.
const SLOWER: f64 = 1.5;
const FASTER: f64 = 1.2;
/// The same where a link decides, which no transfer exceeds: what connecting and a slow start take of [`LEAST`].
const SLOWER_THAN_LINK: f64 = 1.2;

/// What the stages of one end cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Costs {
    /// Reading or writing a file, in picoseconds a byte.
    pub file: u64,
    /// Hashing, in picoseconds a byte.
    pub verify: u64,
    /// Encrypting or decrypting, in picoseconds a byte.
    pub cipher: u64,
    /// Sending or receiving, in picoseconds a byte.
    pub connection: u64,
    /// All that a small file costs beside its bytes, in nanoseconds.
    pub each: u64,
}

/// What is to be moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Bytes.
    pub bytes: u64,
    /// Files that go together.
    pub small: u64,
    /// Most bytes a second.
    pub limit: Option<u64>,
    /// Bytes a second that the link can, where that is known.
    pub link: Option<u64>,
}

/// Bytes a second that were to be expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expected {
    /// At least.
    pub low: u64,
    /// Most likely.
    pub rate: u64,
    /// At most.
    pub high: u64,
}

impl Costs {
    /// Nanoseconds that an end takes for all of it.
    fn of(&self, work: Work) -> f64 {
        let a_byte =
            [self.file, self.verify, self.cipher, self.connection].iter().map(|&cost| cost as f64).sum::<f64>();
        work.bytes as f64 * a_byte / 1e3 + work.small as f64 * self.each as f64
    }
}

impl Expected {
    /// Of two ends with these costs.
    pub fn of(ends: [Costs; 2], work: Work) -> Option<Self> {
        let at = |rate: Option<u64>| rate.map_or(0.0, |rate| work.bytes as f64 * 1e9 / rate.max(1) as f64);
        let (limited, link) = (at(work.limit), at(work.link));
        let ends = ends.map(|costs| costs.of(work)).into_iter().fold(0.0, f64::max);
        let rate = work.bytes as f64 * 1e9 / ends.max(limited).max(link);
        // A limit is kept whatever an end could do.
        let (slower, faster) = match () {
            () if link > ends.max(limited) => (SLOWER_THAN_LINK, 1.0),
            () if limited > ends => (SLOWER, 1.0),
            () => (SLOWER, FASTER),
        };
        let is_known = ends > 0.0 && rate.is_finite() && rate >= 1.0;
        is_known.then_some(Self { low: (rate / slower) as u64, rate: rate as u64, high: (rate * faster) as u64 })
    }
}

/// CPU time of the calling thread for some work, in picoseconds a byte.
pub(crate) fn a_byte(bytes: usize, work: impl FnOnce() -> Result<()>) -> Result<u64> {
    Ok(cpu_time(work)?.saturating_mul(1000) / bytes.max(1) as u64)
}

/// CPU time of the calling thread for some work, in nanoseconds.
pub(crate) fn cpu_time(work: impl FnOnce() -> Result<()>) -> Result<u64> {
    let clock = ThreadClock::own()?;
    let before = clock.used()?;
    work()?;
    Ok(clock.used()?.saturating_sub(before).as_nanos() as u64)
}

/// What the stages between the files cost, at the sender and at the receiver: those that these settings ask for. So many bytes are
/// hashed at once.
pub(crate) fn stages(settings: &Settings, at_once: usize) -> Result<[Costs; 2]> {
    let verify = if settings.verify { hashing(at_once)? } else { 0 };
    let ciphers = if settings.plain { [0; 2] } else { ciphers()? };
    let [sender, receiver] = connections()?;
    let of = |cipher, connection| Costs { verify, cipher, connection, ..Costs::default() };
    Ok([of(ciphers[0], sender), of(ciphers[1], receiver)])
}

/// What hashing so many bytes at once costs.
fn hashing(at_once: usize) -> Result<u64> {
    let part = vec![0x5a; PART];
    let mut hasher = Hasher::new();
    a_byte(PARTS * PART, || {
        for _ in 0..PARTS {
            for piece in part.chunks(at_once.max(1)) {
                hasher.update(piece);
            }
        }
        std::hint::black_box(hasher.finalize());
        Ok(())
    })
}

/// What reading a file that was read before costs.
pub(crate) fn reading(file: &File, bytes: u64) -> Result<u64> {
    let mut part = vec![0; PART];
    let parts = (bytes / PART as u64).min(PARTS as u64);
    if parts == 0 {
        return Ok(0);
    }
    a_byte(parts as usize * PART, || {
        (0..parts).try_for_each(|number| file.read_exact_at(&mut part, number * PART as u64))
    })
}

/// What writing a new file costs.
pub(crate) fn writing(file: &File) -> Result<u64> {
    let part = vec![0x5a; PART];
    a_byte(PARTS * PART, || (0..PARTS as u64).try_for_each(|number| file.write_all_at(&part, number * PART as u64)))
}

/// What sending a file that was read before costs by a method of its own, reading it included.
pub(crate) fn sending_by(file: &File, bytes: u64, setup: SendSetup) -> Result<u64> {
    let bytes = bytes.min((PARTS * PART) as u64);
    if bytes == 0 {
        return Ok(0);
    }
    let (sender, mut receiver) = connected()?;
    let mut path = SendPath::new(sender, SendSetup { patience: FULL, ..setup })?;
    std::thread::scope(|scope| {
        // It ends with the connection, or, where that has failed, when nothing comes.
        let empty = move || while receiver.read(&mut vec![0; PART]).is_ok_and(|came| came > 0) {};
        Thread::named("receiver").start_in(scope, empty)?;
        let cost = a_byte(bytes as usize, || match path.send(file, 0..bytes, None)? {
            sent if sent < bytes => Err(Error::other("the file became shorter")),
            _ => path.finish(),
        });
        drop(path);
        cost
    })
}

/// What receiving into a new file costs by a method of its own, writing it included; and reading it again, if that is to be hashed which
/// the method does not show.
pub(crate) fn receiving_by(file: &File, setup: ReceiveSetup, verify: bool) -> Result<u64> {
    let bytes = PARTS * PART;
    let (mut sender, receiver) = connected()?;
    let mut path = ReceivePath::new(receiver, ReceiveSetup { patience: FULL, ..setup })?;
    if setup.method == ReceiveMethod::Mmap {
        file.set_len(bytes as u64)?;
    }
    let received = std::thread::scope(|scope| {
        // Where it fails, too little comes.
        let fill = move || (0..PARTS).try_for_each(|_| sender.write_all(&[0x5a; PART]));
        Thread::named("sender").start_in(scope, fill)?;
        a_byte(bytes, || match path.receive(file, 0..bytes as u64, None)? {
            came if came < bytes as u64 => Err(Error::other("too little came")),
            _ => Ok(()),
        })
    })?;
    let is_read_again = verify && !setup.method.shows_bytes();
    Ok(received + if is_read_again { reading(file, bytes as u64)? } else { 0 })
}

/// What encrypting and decrypting cost.
fn ciphers() -> Result<[u64; 2]> {
    let (mut sealer, mut opener) = to_oneself().map_err(Error::other)?;
    const { assert!(CHUNK <= CONTENT) };
    let (content, mut opened) = (vec![0x5a; CHUNK], vec![0; CHUNK + TAG]);
    let chunks = PARTS * PART / CHUNK;
    let mut sealed = Vec::with_capacity(CHUNK + TAG);
    let (mut sealing, mut opening) = (0, 0);
    for _ in 0..chunks {
        sealed.clear();
        sealing += cpu_time(|| sealer.seal(&content, &mut sealed).map_err(Error::other))?;
        opening += cpu_time(|| opener.open(&sealed, &mut opened).map(drop).map_err(Error::other))?;
    }
    Ok([sealing, opening].map(|time| time * 1000 / (PARTS * PART) as u64))
}

/// What sending and receiving cost, over a connection of this process to itself.
fn connections() -> Result<[u64; 2]> {
    // One part is in flight, which socket buffers hold; where they are too small for it, the cost stays unknown.
    let (mut sender, mut receiver) = connected()?;
    let (content, mut came) = (vec![0x5a; PART], vec![0; PART]);
    let (mut sending, mut receiving) = (0, 0);
    for _ in 0..PARTS {
        sending += cpu_time(|| sender.write_all(&content))?;
        receiving += cpu_time(|| receiver.read_exact(&mut came))?;
    }
    Ok([sending, receiving].map(|time| time * 1000 / (PARTS * PART) as u64))
}

/// Both ends of a connection of this process to itself.
fn connected() -> Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let sender = TcpStream::connect(listener.local_addr()?)?;
    let (receiver, _) = listener.accept()?;
    sender.set_write_timeout(Some(FULL))?;
    receiver.set_read_timeout(Some(FULL))?;
    sender.set_nodelay(true)?;
    Ok((sender, receiver))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::moving::{Mode, SendMethod};

    const SENDER: Costs = Costs { file: 200, verify: 100, cipher: 150, connection: 150, each: 5_000 };
    const RECEIVER: Costs = Costs { file: 300, verify: 100, cipher: 150, connection: 250, each: 12_000 };

    fn rate(work: Work) -> u64 {
        Expected::of([SENDER, RECEIVER], work).unwrap().rate
    }

    #[test]
    fn the_slower_end_decides() {
        // 800 ps a byte at the receiver.
        assert_eq!(rate(Work { bytes: 1 << 30, ..Work::default() }), 1_250_000_000);
        let faster = Costs { file: 0, ..RECEIVER };
        let expected = Expected::of([SENDER, faster], Work { bytes: 1 << 30, ..Work::default() }).unwrap();
        assert_eq!(expected.rate, 1_666_666_666);
        assert!(expected.low < expected.rate && expected.rate < expected.high);
    }

    #[test]
    fn small_files_cost_more_than_their_bytes() {
        // 4096 bytes a file: 3.3 us for the bytes and 12 us beside them.
        let work = Work { bytes: 4096 * 1000, small: 1000, ..Work::default() };
        assert_eq!(rate(work), (4096.0 * 1e9 / (4096.0 * 0.8 + 12_000.0)) as u64);
    }

    #[test]
    fn no_end_is_faster_than_the_limit() {
        let work = Work { bytes: 1 << 30, limit: Some(1_000_000), ..Work::default() };
        let expected = Expected::of([SENDER, RECEIVER], work).unwrap();
        assert_eq!((expected.rate, expected.high), (1_000_000, 1_000_000));
    }

    #[test]
    fn a_link_that_is_slower_than_both_ends_decides_and_another_one_does_not() {
        let of =
            |link, limit| Expected::of([SENDER, RECEIVER], Work { bytes: 1 << 30, small: 0, limit, link }).unwrap();
        let slow = of(Some(12_000_000), None);
        assert_eq!((slow.low, slow.rate, slow.high), (10_000_000, 12_000_000, 12_000_000));
        assert_eq!(of(Some(12_000_000), Some(1_000_000)).rate, 1_000_000);
        assert_eq!(of(Some(20_000_000_000), None), of(None, None));
    }

    /// The other end's costs are its own, and may be anything.
    #[test]
    fn no_costs_break_it() {
        let all = u64::MAX;
        let most = Costs { file: all, verify: all, cipher: all, connection: all, each: all };
        for costs in [Costs::default(), most] {
            for bytes in [0, 1, u64::MAX] {
                for limit in [None, Some(0), Some(u64::MAX)] {
                    let _ = Expected::of([costs; 2], Work { bytes, small: u64::MAX, limit, link: limit });
                }
            }
        }
        assert_eq!(Expected::of([Costs::default(); 2], Work { bytes: 5, ..Work::default() }), None);
    }

    #[test]
    fn every_stage_can_be_done_again() {
        let file = tempfile::tempfile().unwrap();
        let written = writing(&file).unwrap();
        let read = reading(&file, (PARTS * PART) as u64).unwrap();
        let ([sending, receiving], [sealing, opening]) = (connections().unwrap(), ciphers().unwrap());
        let costs = [hashing(PART).unwrap(), written, read, sending, receiving, sealing, opening];
        assert!(costs.iter().all(|cost| *cost > 0), "{costs:?}");
        assert_eq!(reading(&file, 5).unwrap(), 0, "a part is read, or nothing");
    }

    /// 2048 calls for what a call can move make the difference, whatever the machine.
    #[test]
    fn fewer_bytes_a_call_cost_more_by_every_method_that_has_calls_of_its_own() {
        let file = tempfile::tempfile().unwrap();
        writing(&file).unwrap();
        let bytes = (PARTS * PART) as u64;
        let (mode, window, patience) = (Mode::Blocking, 256, FULL);
        for method in [SendMethod::ReadWrite, SendMethod::Sendfile] {
            let cost = |buffer| sending_by(&file, bytes, SendSetup { method, mode, buffer, window, patience }).unwrap();
            assert!(cost(512) > cost(PART), "{method}");
        }
        let method = ReceiveMethod::ReadWrite;
        let cost =
            |buffer| receiving_by(&file, ReceiveSetup { method, mode, buffer, window, patience }, false).unwrap();
        assert!(cost(512) > cost(PART));
        assert!(hashing(512).unwrap() > 0);
    }

    #[test]
    fn every_method_can_be_done_again() {
        let file = tempfile::tempfile().unwrap();
        writing(&file).unwrap();
        let (buffer, window, patience) = (4096, 16, FULL);
        let mode = |is_ring| if is_ring { Mode::Uring } else { Mode::Blocking };
        for &method in SendMethod::ALL {
            let setup = SendSetup { method, mode: mode(method == SendMethod::Uring), buffer, window, patience };
            match sending_by(&file, (PARTS * PART) as u64, setup) {
                Err(error) if method == SendMethod::Uring && error.kind() == std::io::ErrorKind::Unsupported => {}
                cost => assert!(cost.unwrap() > 0, "{method}"),
            }
        }
        for &method in ReceiveMethod::ALL {
            let setup = ReceiveSetup { method, mode: mode(method == ReceiveMethod::Uring), buffer, window, patience };
            match receiving_by(&tempfile::tempfile().unwrap(), setup, true) {
                Err(error) if method == ReceiveMethod::Uring && error.kind() == std::io::ErrorKind::Unsupported => {}
                cost => assert!(cost.unwrap() > 0, "{method}"),
            }
        }
    }
}
