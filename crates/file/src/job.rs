//! A file read by many threads at once, and all that is known of it afterwards.

use std::ops::{ControlFlow, Range};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kelvin_stats::Histogram;
use kelvin_sys::clock::{Clock, monotonic};
use kelvin_sys::interrupt;
use kelvin_sys::usage::{Usage, Who, usage};

use crate::cache::{self, Residency, State};
use crate::device::{Device, Moved};
use crate::digest::{Digest, Digesting};
use crate::engine::{Engine, How, Reader};
use crate::observe::{Latencies, Observer, Tally};
use crate::requests::{Order, Request, Requests};
use crate::target::Target;
use crate::{Error, Result};

/// What shall be read, and how.
#[derive(Clone, Debug)]
pub struct Job {
    /// The file.
    pub target: Target,
    /// The way.
    pub engine: Engine,
    /// Bytes of a block.
    pub block: usize,
    /// In which order; each thread has a part of the file to itself.
    pub order: Order,
    /// What of it shall be in memory before.
    pub state: State,
    /// Threads, each with a file descriptor of its own.
    pub threads: u32,
    /// The part of the file that is read, in bytes.
    pub range: Range<u64>,
    /// When to end.
    pub until: Until,
    /// Whether the digest is wanted.
    pub digest: bool,
    /// The clock by which each request is timed, and its ticks a second; none if latencies are not wanted.
    pub latencies: Option<(Clock, f64)>,
}

/// When a job ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// After so many passes over the file.
    Passes(u64),
    /// After so many requests of all threads together, from the beginning again at the end of the file.
    Requests(u64),
    /// After so long, from the beginning again at the end of the file.
    Time(Duration),
}

/// What was read, and all that is known of it.
#[derive(Clone, Debug)]
pub struct Done {
    /// Bytes and requests of all threads.
    pub total: Tally,
    /// Nanoseconds from the start of the first thread to the end of the last.
    pub nanoseconds: u64,
    /// Each thread's own bytes and requests, and the nanoseconds that it took.
    pub threads: Vec<(Tally, u64)>,
    /// Passes that every thread has completed.
    pub passes: u64,
    /// The digest, if it was wanted; over several passes, of each byte as often as it was read.
    pub digest: Option<Digest>,
    /// Times of single requests, if they were wanted.
    pub latencies: Option<Histogram>,
    /// Bytes read in each second from the start; the last second may be a part of one.
    pub series: Vec<u64>,
    /// What the process used: time in user mode and in the kernel, switches, faults.
    pub used: Usage,
    /// What was in memory before.
    pub before: Residency,
    /// What was in memory afterwards.
    pub after: Residency,
    /// What the device below says that it moved meanwhile, for this job and for whoever else uses it.
    pub device: std::result::Result<(String, Moved), String>,
    /// Mean number of requests that were under way, summed over threads, where the way has several.
    pub achieved_depth: Option<f64>,
    /// What was done that the settings do not say.
    pub notes: Vec<String>,
}

impl Done {
    /// Bytes a second.
    pub fn rate(&self) -> f64 {
        self.total.bytes as f64 * 1e9 / self.nanoseconds.max(1) as f64
    }

    /// Requests a second.
    pub fn requests_per_second(&self) -> f64 {
        self.total.requests as f64 * 1e9 / self.nanoseconds.max(1) as f64
    }

    /// How evenly the threads were served: see [`fairness`].
    pub fn fairness(&self) -> f64 {
        let rates: Vec<f64> =
            self.threads.iter().map(|(tally, time)| tally.bytes as f64 / (*time).max(1) as f64).collect();
        fairness(&rates)
    }
}

/// How evenly something was shared, by Jain's index of what each got: 1 if all had the same, 1/n if one had all (Jain, Chiu,
/// Hawe 1984).
pub fn fairness(rates: &[f64]) -> f64 {
    let (sum, squares) = rates.iter().fold((0.0, 0.0), |(sum, squares), rate| (sum + rate, squares + rate * rate));
    if squares == 0.0 { 1.0 } else { sum * sum / (rates.len() as f64 * squares) }
}

/// Reads.
///
/// # Errors
/// A file that cannot be read so, or not to its end; a state of the page cache that cannot be reached; a signal.
pub fn run(job: &Job) -> Result<Done> {
    let parts = parts(job)?;
    let before = cache::bring(&job.target, job.state)?;
    let device = Device::below(&job.target);
    let counted = |device: &Device| device.moved().map_err(|error| error.to_string());
    let moved_before = device.as_ref().map_err(Clone::clone).and_then(counted);
    let used_before = usage(Who::Process);
    let outcome = all_threads(job, parts)?;
    let used = usage(Who::Process).since(used_before);
    let moved = device.and_then(|device| Ok((device.name.clone(), counted(&device)?.since(moved_before?))));
    let after = cache::residency(&job.target)?;
    Ok(summed(job, outcome, used, (before, after), moved))
}

fn summed(
    job: &Job,
    members: Vec<Member>,
    used: Usage,
    (before, after): (Residency, Residency),
    device: std::result::Result<(String, Moved), String>,
) -> Done {
    let begun = members.iter().map(|member| member.begun).min().unwrap_or(0);
    let ended = members.iter().map(|member| member.ended).max().unwrap_or(begun);
    let mut done = Done {
        total: Tally::default(),
        nanoseconds: ended - begun,
        threads: Vec::new(),
        passes: members.iter().map(|member| member.passes).min().unwrap_or(0),
        digest: job.digest.then(Digest::default),
        latencies: job.latencies.map(|_| Histogram::new()),
        series: Vec::new(),
        used,
        before,
        after,
        device,
        achieved_depth: None,
        notes: Vec::new(),
    };
    for member in members {
        done.total.bytes += member.tally.bytes;
        done.total.requests += member.tally.requests;
        done.threads.push((member.tally, member.ended - member.begun));
        if let Some(digest) = &mut done.digest {
            digest.merge(member.digest);
        }
        if let (Some(all), Some(histogram)) = (&mut done.latencies, &member.latencies) {
            all.merge(histogram);
        }
        done.series.resize(done.series.len().max(member.series.len()), 0);
        done.series.iter_mut().zip(&member.series).for_each(|(all, one)| *all += one);
        if let Some(depth) = member.achieved_depth {
            *done.achieved_depth.get_or_insert(0.0) += depth;
        }
        for note in member.notes {
            if !done.notes.contains(&note) {
                done.notes.push(note);
            }
        }
    }
    done
}

/// The requests of each thread: whole blocks of the range, as evenly as can be.
fn parts(job: &Job) -> Result<Vec<Requests>> {
    let (threads, block) = (u64::from(job.threads), job.block as u64);
    if threads == 0 || block == 0 {
        return Err(Error::Settings("there must be a thread and a byte in a block at least".into()));
    }
    if job.range.start > job.range.end || job.range.end > job.target.bytes() {
        return Err(Error::Settings(format!(
            "{} has {} bytes, and not those from {} to {}",
            job.target.path().display(),
            job.target.bytes(),
            job.range.start,
            job.range.end
        )));
    }
    let blocks = (job.range.end - job.range.start).div_ceil(block);
    if threads > blocks.max(1) {
        return Err(Error::Settings(format!(
            "{threads} threads have nothing to share: there are {blocks} blocks of {block} bytes"
        )));
    }
    let requests = |thread: u64| {
        let start = job.range.start + thread * blocks / threads * block;
        let end = (job.range.start + (thread + 1) * blocks / threads * block).min(job.range.end);
        let order = match job.order {
            Order::Sequential => Order::Sequential,
            Order::Random { seed } => Order::Random { seed: seed.wrapping_add(thread) },
        };
        let all = Requests::new(start..end, job.block, order);
        match job.until {
            Until::Passes(passes) => all.passes(passes),
            Until::Requests(count) => all.endless().at_most((thread + 1) * count / threads - thread * count / threads),
            Until::Time(_) => all.endless(),
        }
    };
    Ok((0..threads).map(requests).collect())
}

/// What one thread did.
struct Member {
    tally: Tally,
    begun: u64,
    ended: u64,
    passes: u64,
    digest: Digest,
    latencies: Option<Histogram>,
    series: Vec<u64>,
    achieved_depth: Option<f64>,
    notes: Vec<String>,
}

/// Has all threads begin at once and waits for them. If one fails, the others end too, and its error is the job's.
fn all_threads(job: &Job, parts: Vec<Requests>) -> Result<Vec<Member>> {
    let (barrier, stop) = (Barrier::new(parts.len()), AtomicBool::new(false));
    let results: Vec<Result<Member>> = std::thread::scope(|scope| {
        let member = |requests: Requests| {
            let (barrier, stop) = (&barrier, &stop);
            scope.spawn(move || {
                let how = How { access: job.state.access(), block: job.block, order: job.order };
                let reader = job.engine.open(&job.target, how);
                barrier.wait();
                let result = reader.and_then(|reader| member(job, reader, requests, stop));
                if result.is_err() {
                    stop.store(true, Ordering::Relaxed);
                }
                result
            })
        };
        let handles: Vec<_> = parts.into_iter().map(member).collect();
        let died = || Err(Error::Settings("a thread that reads has panicked".into()));
        handles.into_iter().map(|handle| handle.join().unwrap_or_else(|_| died())).collect()
    });
    let members = results.into_iter().collect::<Result<Vec<Member>>>()?;
    match interrupt::requested() {
        Some(signal) => Err(Error::Interrupted(signal)),
        None => Ok(members),
    }
}

/// One thread's part, told to an observer that does what is wanted and nothing else.
fn member(job: &Job, reader: Reader, requests: Requests, stop: &AtomicBool) -> Result<Member> {
    let paced = Paced::new(job.until, stop);
    let digesting = |inner| Digesting { inner, digest: Digest::default() };
    match (job.latencies, job.digest) {
        (None, false) => work(reader, requests, paced, |paced| (paced, Digest::default(), None)),
        (None, true) => work(reader, requests, digesting(paced), |all| (all.inner, all.digest, None)),
        (Some((clock, hertz)), false) => {
            let observer = Latencies::new(paced, clock, hertz);
            work(reader, requests, observer, |all| (all.inner, Digest::default(), Some(all.histogram)))
        }
        (Some((clock, hertz)), true) => {
            let observer = Latencies::new(digesting(paced), clock, hertz);
            work(reader, requests, observer, |all| (all.inner.inner, all.inner.digest, Some(all.histogram)))
        }
    }
}

fn work<'a, O: Observer>(
    mut reader: Reader,
    mut requests: Requests,
    mut observer: O,
    apart: impl FnOnce(O) -> (Paced<'a>, Digest, Option<Histogram>),
) -> Result<Member> {
    let begun = monotonic();
    reader.read(&mut requests, &mut observer)?;
    let ended = monotonic();
    let (mut paced, digest, latencies) = apart(observer);
    paced.note(ended);
    Ok(Member {
        tally: paced.tally,
        begun: paced.begun.min(begun),
        ended,
        passes: requests.complete_passes(),
        digest,
        latencies,
        series: paced.series,
        achieved_depth: reader.achieved_depth(),
        notes: reader.notes(),
    })
}

/// Nanoseconds from one look at the clock to the next.
const LOOK: u64 = 5_000_000;
const SECOND: u64 = 1_000_000_000;

/// Counts, and looks at the clock now and then: whether it is time to end, and what each second brought.
struct Paced<'a> {
    tally: Tally,
    begun: u64,
    deadline: u64,
    stop: &'a AtomicBool,
    /// Requests from one look to the next, and until the next.
    stride: u64,
    left: u64,
    looked: u64,
    noted: u64,
    series: Vec<u64>,
}

impl<'a> Paced<'a> {
    fn new(until: Until, stop: &'a AtomicBool) -> Self {
        let begun = monotonic();
        let deadline = match until {
            Until::Time(time) => begun.saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)),
            _ => u64::MAX,
        };
        Self {
            tally: Tally::default(),
            begun,
            deadline,
            stop,
            stride: 1,
            left: 1,
            looked: begun,
            noted: 0,
            series: Vec::new(),
        }
    }

    /// Counts what was read since the last look into the second of now.
    fn note(&mut self, now: u64) {
        let second = ((now - self.begun) / SECOND) as usize;
        self.series.resize(self.series.len().max(second + 1), 0);
        self.series[second] += self.tally.bytes - self.noted;
        self.noted = self.tally.bytes;
    }

    #[cold]
    fn look(&mut self) -> ControlFlow<()> {
        let now = monotonic();
        self.note(now);
        // As many requests as take a look's time, but a step of two at most: the first ones may have been slow.
        let wanted = (self.stride as f64 * LOOK as f64 / (now - self.looked).max(1) as f64) as u64;
        self.stride = wanted.clamp(1, self.stride.saturating_mul(2));
        self.left = self.stride;
        self.looked = now;
        let over = now >= self.deadline || self.stop.load(Ordering::Relaxed) || interrupt::requested().is_some();
        if over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

impl Observer for Paced<'_> {
    type Stamp = ();

    #[inline(always)]
    fn begin(&mut self) {}

    #[inline(always)]
    fn end(&mut self, (): (), request: Request, _: &[u8]) -> ControlFlow<()> {
        self.tally.bytes += request.bytes as u64;
        self.tally.requests += 1;
        self.left -= 1;
        if self.left == 0 { self.look() } else { ControlFlow::Continue(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(bytes: usize) -> (tempfile::NamedTempFile, Target) {
        let file = tempfile::NamedTempFile::new_in(".").unwrap();
        let content: Vec<u8> = (0..bytes as u32).map(|i| (i.wrapping_mul(0x9E37_79B9) >> 7) as u8).collect();
        std::fs::write(file.path(), content).unwrap();
        let target = Target::find(file.path()).unwrap();
        (file, target)
    }

    fn job(target: &Target) -> Job {
        Job {
            target: target.clone(),
            engine: Engine::Pread,
            block: 4096,
            order: Order::Sequential,
            state: State::AsFound,
            threads: 1,
            range: 0..target.bytes(),
            until: Until::Passes(1),
            digest: true,
            latencies: None,
        }
    }

    #[test]
    fn any_number_of_threads_reads_the_file_once() {
        let (_file, target) = file(1_000_003);
        let alone = run(&job(&target)).unwrap();
        assert_eq!((alone.total, alone.passes), (Tally { bytes: 1_000_003, requests: 245 }, 1));
        for threads in [2, 3, 7] {
            for order in [Order::Sequential, Order::Random { seed: 1 }] {
                let latencies = Some((Clock::MonotonicRaw, 1e9));
                let done = run(&Job { threads, order, latencies, state: State::Cached, ..job(&target) }).unwrap();
                assert_eq!((done.total, done.digest), (alone.total, alone.digest));
                assert_eq!(done.threads.len(), threads as usize);
                assert_eq!(done.series.iter().sum::<u64>(), 1_000_003);
                assert_eq!(done.latencies.unwrap().count(), 245);
                assert!(done.before.is_whole());
            }
        }
    }

    #[test]
    fn it_ends_after_so_many_requests_or_so_long() {
        let (_file, target) = file(100_000);
        let counted = run(&Job { until: Until::Requests(1001), threads: 2, ..job(&target) }).unwrap();
        assert_eq!((counted.total.requests, counted.passes), (1001, 38));
        let time = Duration::from_millis(50);
        let timed = run(&Job { until: Until::Time(time), ..job(&target) }).unwrap();
        assert!(timed.nanoseconds >= 50_000_000 && timed.passes > 1, "{timed:?}");
        assert!(timed.fairness() == 1.0);
    }

    #[test]
    fn settings_that_do_not_go_together_are_refused() {
        let (_file, target) = file(10_000);
        let says = |job: Job| run(&job).unwrap_err().to_string();
        assert!(says(Job { threads: 4, ..job(&target) }).contains("there are 3 blocks"));
        assert!(says(Job { range: 0..10_001, ..job(&target) }).contains("has 10000 bytes"));
        assert!(says(Job { block: 0, ..job(&target) }).contains("a byte in a block"));
        let direct = Job { block: 1000, state: State::Direct, ..job(&target) };
        assert!(says(direct).contains("past the page cache"));
    }

    #[test]
    fn fairness_is_jains_index() {
        let (_file, target) = file(10_000);
        let mut done = run(&job(&target)).unwrap();
        let of = |bytes| (Tally { bytes, requests: 1 }, 1000);
        done.threads = vec![of(10), of(0)];
        assert_eq!(done.fairness(), 0.5);
        done.threads = vec![of(7), of(7), of(7)];
        assert!((done.fairness() - 1.0).abs() < 1e-12);
    }
}
