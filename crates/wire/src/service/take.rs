//! Streams of bytes from a client: taken by a thread each, counted, and thrown away.

use std::io::Read;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::Instant;

use super::{Served, accept, broken, is_in_time, listen, used};
use crate::agent::Limits;
use crate::channel::Channel;
use crate::message::{Answer, Ask, Counted, Seen};
use crate::{Error, Result};

/// Bytes that are asked for at one time: larger ones no longer make it faster, and these stay in a cache.
const BUFFER: usize = 128 << 10;

/// Takes them until the client says that it is over, and says in between what has arrived.
pub fn serve(channel: &mut Channel, streams: u32, limits: &Limits, served: &Served<'_>) -> Result<Seen> {
    if streams == 0 || streams > limits.streams {
        return Err(Error::Refused(format!("a test has one connection at least, and {} at most", limits.streams)));
    }
    let streams = accept(&listen(channel)?, streams, channel, limits)?;
    let (bytes, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            streams.iter().map(|stream| scope.spawn(|| take(stream, &bytes, &is_over, limits))).collect();
        let outcome = answer(channel, &bytes, begun, &threads, limits, served);
        is_over.store(true, Ordering::Relaxed);
        // One that is closed already needs no end.
        streams.iter().for_each(|stream| drop(stream.shutdown(Shutdown::Both)));
        let ends: Vec<[u64; 2]> = threads.into_iter().map(end).collect::<Result<_>>()?;
        outcome?;
        let mut seen = Seen { arrived: bytes.load(Ordering::Relaxed), ..Seen::default() };
        for end in ends {
            seen.cpu_nanoseconds.iter_mut().zip(end).for_each(|(all, one)| *all += one);
        }
        Ok(seen)
    })
}

type Taking<'scope> = ScopedJoinHandle<'scope, Result<[u64; 2]>>;

fn end(thread: Taking<'_>) -> Result<[u64; 2]> {
    let panicked = |_| Error::Refused("a thread of the agent ended by a fault of its own".into());
    thread.join().map_err(panicked).and_then(|outcome| outcome)
}

/// Answers what the client asks meanwhile.
fn answer(
    channel: &mut Channel,
    bytes: &AtomicU64,
    begun: Instant,
    threads: &[Taking<'_>],
    limits: &Limits,
    served: &Served<'_>,
) -> Result<()> {
    loop {
        let ask: Ask = channel.receive(limits.idle)?;
        served.look();
        is_in_time(begun, limits)?;
        match ask {
            // A stream that ended early has told why, or was closed.
            Ask::Count if threads.iter().any(ScopedJoinHandle::is_finished) => return Err(Error::Gone),
            Ask::Count => {
                let counted = Counted { bytes: bytes.load(Ordering::Relaxed), at: begun.elapsed().as_nanos() as u64 };
                channel.send(&Answer::Counted(counted), limits.idle)?;
            }
            Ask::End => return Ok(()),
            _ => return Err(Error::Refused("one test must end before the next one begins".into())),
        }
    }
}

/// Takes one stream; the CPU time that it cost.
fn take(mut stream: &TcpStream, bytes: &AtomicU64, is_over: &AtomicBool, limits: &Limits) -> Result<[u64; 2]> {
    let mut buffer = vec![0; BUFFER];
    let before = used();
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => drop(bytes.fetch_add(count as u64, Ordering::Relaxed)),
            Err(_) if is_over.load(Ordering::Relaxed) => break,
            Err(error) => return Err(broken(limits)(error)),
        }
    }
    let after = used();
    Ok([after[0] - before[0], after[1] - before[1]])
}
