//! Streams of bytes to another process, each sent by one thread and received by one thread, counted where they arrive.

use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use kelvin_sys::clock::monotonic;
use kelvin_sys::partner::{PartnerKind, PartnerStatus, PartnerTask};
use kelvin_sys::shared_memory::Shared;
use kelvin_sys::thread_spawn::ThreadBuilder;
use kelvin_sys::usage::{UsageScope, read_usage};
use kelvin_sys::{Error, Result, cpu, net};
use kelvin_transfer::wire::cpu_usage::SATURATED_SHARE;
use kelvin_transfer::wire::message::SequenceCounts;

use super::link::{LINK_TIMEOUT, is_timeout, of_socket};
use super::prelude::*;
use super::sender::MessageSender;
use super::steady_state::{StreamTotals, wait_for_peak};

/// Windows in which a stream is watched until its rate no longer rises, and their limit.
const SETTLE_WINDOW: Duration = Duration::from_millis(5);
const MAX_SETTLE_WINDOWS: u32 = 20;
/// Time for which the rate of TCP streams between two CPUs rises, too slowly and unevenly for windows to show: over the first
/// 70 ms the mean of many streams of 64 KiB messages is a tenth to a sixth below the later one. On one CPU it settles within
/// the first windows.
const TCP_RISE_TIME: Duration = Duration::from_millis(70);

/// What is to be streamed.
#[derive(Clone, Debug)]
pub(crate) struct StreamPlan {
    pub protocol: Protocol,
    pub method: SendMethod,
    /// Bytes of each call to send, and requested by each call to receive.
    pub message: usize,
    /// The CPUs of the two threads of each stream.
    pub streams: Vec<StreamCpus>,
}

impl StreamPlan {
    /// TCP streams of messages by the plain call.
    pub(crate) fn tcp(message: usize, streams: Vec<StreamCpus>) -> Self {
        Self { protocol: Protocol::Tcp, method: SendMethod::Send, message, streams }
    }
}

/// The CPUs of a stream's sender and receiver.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamCpus {
    pub sender: u32,
    pub receiver: u32,
}

/// This many streams. The senders go round these CPUs, each receiver this many CPUs further on: the same one, or the
/// next.
pub(crate) fn place_streams(streams: u64, cpus: &[u32], receiver_offset: usize) -> Vec<StreamCpus> {
    let cpu = |number: usize| cpus[number % cpus.len()];
    (0..streams as usize)
        .map(|number| StreamCpus { sender: cpu(number), receiver: cpu(number + receiver_offset) })
        .collect()
}

/// The counters of one stream, in memory that both processes share. Each is written by one thread.
struct StreamCounters(Shared<[AtomicU64; CounterIndex::Sent as usize + 1]>);

/// The counters. The sender's lie two cache lines from the receiver's: neither evicts the other's.
#[derive(Clone, Copy, Debug)]
enum CounterIndex {
    /// Bytes that have arrived.
    Bytes,
    /// Datagrams that have arrived.
    Arrived,
    /// Number of the latest datagram that has arrived.
    Latest,
    /// Datagrams that arrived after one that was sent later.
    Reordered,
    /// Nanoseconds of CPU time and of elapsed time of the receiver, from its first message on.
    Busy,
    Passed,
    /// Bytes that the receiver's buffer could hold at the end, as the kernel counts them.
    Buffer,
    /// Bytes that were sent.
    Sent = 16,
}

impl StreamCounters {
    fn read(&self, figure: CounterIndex) -> u64 {
        self.0[figure as usize].load(Ordering::Relaxed)
    }

    fn set(&self, figure: CounterIndex, value: u64) {
        self.0[figure as usize].store(value, Ordering::Relaxed);
    }

    /// Adds to a counter that this thread alone writes.
    fn add(&self, figure: CounterIndex, value: u64) {
        self.set(figure, self.read(figure) + value);
    }
}

const STARTING: &str = "cannot start the streams";

/// The sender or receiver of a stream, and its CPU time and the time that passed meanwhile, in nanoseconds.
struct EndUsage {
    role: &'static str,
    cpu: u32,
    busy: u64,
    elapsed: u64,
}

impl EndUsage {
    fn busy_share(&self) -> f64 {
        self.busy as f64 / self.elapsed.max(1) as f64
    }
}

/// What is known of streams that have ended.
pub(crate) struct StreamReport {
    /// Their sockets, and how busy each sender and receiver was, in words.
    pub words: String,
    /// The share of the time that the streams' senders and receivers kept a CPU busy, of the busiest CPU.
    pub max_cpu_share: f64,
}

/// How busy a sender was, and what it achieved, where that may differ from what was requested.
type SenderResult = Result<(EndUsage, Option<String>)>;

/// Streams that run. Dropped, they are cut off.
pub(crate) struct BulkStreams {
    plan: StreamPlan,
    links: Arc<Vec<Link>>,
    accounts: Arc<Vec<StreamCounters>>,
    stop: Arc<AtomicBool>,
    senders: Vec<JoinHandle<SenderResult>>,
    receivers: PartnerTask,
}

impl BulkStreams {
    /// Starts the receivers as threads of another process of this machine, and the senders as threads of this one.
    pub(crate) fn start(plan: StreamPlan) -> ProbeResult<Self> {
        let pairs = plan.streams.iter().map(|_| Link::pair(plan.protocol)).collect::<Result<Vec<_>>>();
        Self::over_links(pairs.or_fail(STARTING)?, plan)
    }

    /// Like `start`, over these connections, one for each stream of the plan; the sender's socket of each first.
    pub(crate) fn over_links(pairs: Vec<(Link, Link)>, plan: StreamPlan) -> ProbeResult<Self> {
        for (sender, receiver) in &pairs {
            // The kernel may gather small writes into packets, as it does by default.
            if let Link::Tcp(stream) = sender {
                stream.set_nodelay(false).or_fail(STARTING)?;
            }
            // A sender whose receiver is gone must not wait for ever, nor a receiver of datagrams for their end.
            of_socket!(sender, socket => socket.set_write_timeout(Some(LINK_TIMEOUT))).or_fail(STARTING)?;
            receiver.set_receive_timeout(SETTLE_WINDOW).or_fail(STARTING)?;
        }
        let (sender_links, receiver_links): (Vec<Link>, Vec<Link>) = pairs.into_iter().unzip();
        let accounts = plan.streams.iter().map(|_| Shared::new().map(StreamCounters)).collect::<Result<Vec<_>>>();
        let accounts = Arc::new(accounts.or_fail(STARTING)?);
        let first = plan.streams.first().or_fail("no stream was requested")?.receiver;
        let (task, receiver_accounts) = (plan.clone(), Arc::clone(&accounts));
        let receivers = PartnerTask::start(PartnerKind::Process, first, move |board| {
            receive_all(&task, &receiver_links, &receiver_accounts, board)
        });
        let mut bulk = Self {
            links: Arc::new(sender_links),
            accounts,
            stop: Arc::new(AtomicBool::new(false)),
            senders: Vec::new(),
            receivers: receivers.or_fail(STARTING)?,
            plan,
        };
        bulk.start_senders().or_fail(STARTING)?;
        Ok(bulk)
    }

    fn start_senders(&mut self) -> Result<()> {
        for (number, ends) in self.plan.streams.clone().into_iter().enumerate() {
            let (links, accounts, stop) = (Arc::clone(&self.links), Arc::clone(&self.accounts), Arc::clone(&self.stop));
            let (method, message) = (self.plan.method, self.plan.message);
            let run_sender = move || {
                let (link, account) = (&links[number], &accounts[number]);
                cpu::pin(&[ends.sender])?;
                let mut sender = MessageSender::new(method, link, message)?;
                let start = thread_times();
                while !stop.load(Ordering::Relaxed) {
                    sender.send(link)?;
                    account.add(CounterIndex::Sent, message as u64);
                }
                let description = sender.describe_achieved(link)?;
                let [busy, elapsed] = times_since(start);
                Ok((EndUsage { role: "sender", cpu: ends.sender, busy, elapsed }, description))
            };
            self.senders.push(ThreadBuilder::named("sender").start(run_sender)?);
        }
        Ok(())
    }

    /// Waits until the rate no longer rises, so that slow start and growing buffers are left out; how long that took.
    pub(crate) fn wait_until_settled(&self) -> ProbeResult<Duration> {
        let start = monotonic();
        // Its streams reach their full rate only after a while.
        if self.plan.protocol == Protocol::Tcp && self.plan.streams.iter().any(|ends| ends.sender != ends.receiver) {
            std::thread::sleep(TCP_RISE_TIME);
        }
        wait_for_peak(MAX_SETTLE_WINDOWS, || {
            let before = self.totals()?;
            std::thread::sleep(SETTLE_WINDOW);
            Ok(self.totals()?.rate_since(&before))
        })?;
        Ok(Duration::from_nanos(monotonic() - start))
    }

    /// The totals so far.
    ///
    /// # Errors
    /// That a sender or receiver has failed.
    pub(crate) fn totals(&self) -> ProbeResult<StreamTotals> {
        self.receivers.check().or_fail("the receiving process")?;
        fail_if(self.senders.iter().any(JoinHandle::is_finished), "a sender ended early")?;
        let sum = |figure| self.accounts.iter().map(|account| account.read(figure)).sum();
        Ok(StreamTotals {
            time: monotonic(),
            bytes: sum(CounterIndex::Bytes),
            sent: sum(CounterIndex::Sent),
            numbers: SequenceCounts {
                arrived: sum(CounterIndex::Arrived),
                latest: sum(CounterIndex::Latest),
                reordered: sum(CounterIndex::Reordered),
            },
        })
    }

    /// Ends the streams; what is known of them.
    ///
    /// # Errors
    /// What went wrong in a sender or receiver.
    pub(crate) fn finish(mut self) -> ProbeResult<StreamReport> {
        let mut parts = vec![self.links[0].describe()?];
        self.stop.store(true, Ordering::Relaxed);
        let mut ends = Vec::new();
        for sender in self.senders.drain(..) {
            let outcome = sender.join().map_err(|_| ProbeError::fail("a sender panicked"))?;
            let (usage, description) = outcome.or_fail("a sender")?;
            ends.push(usage);
            parts.extend(description);
        }
        self.shut_down();
        self.receivers.join().or_fail("the receiving process")?;
        // Of the first stream, like the rest of its socket's facts: the others are made in the same way.
        parts.push(format!("the receiver's has {} KiB to receive", self.accounts[0].read(CounterIndex::Buffer) >> 10));
        for (account, cpus) in self.accounts.iter().zip(&self.plan.streams) {
            let [busy, elapsed] = [CounterIndex::Busy, CounterIndex::Passed].map(|figure| account.read(figure));
            ends.push(EndUsage { role: "receiver", cpu: cpus.receiver, busy, elapsed });
        }
        parts.push(describe_load(&ends));
        parts.dedup();
        let max_cpu_share = cpu_loads(&ends).map(|(_, load)| load).fold(0.0, f64::max);
        Ok(StreamReport { words: parts.join("; "), max_cpu_share })
    }

    /// Shows the receivers the end.
    fn shut_down(&self) {
        self.receivers.stop();
        self.links.iter().for_each(Link::shut_down);
    }
}

impl Drop for BulkStreams {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.shut_down();
        for sender in self.senders.drain(..) {
            // Whoever drops this early has reported what went wrong.
            let _ = sender.join();
        }
    }
}

/// The CPUs of senders and receivers, each with the share of the time that they kept it busy.
fn cpu_loads(ends: &[EndUsage]) -> impl Iterator<Item = (u32, f64)> {
    let mut cpus: Vec<u32> = ends.iter().map(|end| end.cpu).collect();
    cpus.sort_unstable();
    cpus.dedup();
    let load = |cpu| ends.iter().filter(|end| end.cpu == cpu).map(EndUsage::busy_share).sum::<f64>();
    cpus.into_iter().map(move |cpu| (cpu, load(cpu)))
}

/// How busy each sender and receiver was, and which CPUs were full, in words.
fn describe_load(ends: &[EndUsage]) -> String {
    let usage: Vec<String> = ends
        .iter()
        .map(|end| format!("{} on CPU {} {:.0} % busy", end.role, end.cpu, 100.0 * end.busy_share()))
        .collect();
    let saturated: Vec<String> =
        cpu_loads(ends).filter(|&(_, load)| load >= SATURATED_SHARE).map(|(cpu, _)| cpu.to_string()).collect();
    let usage = usage.join(", ");
    if saturated.is_empty() { usage } else { format!("{usage}: CPU-limited, CPU {} is full", saturated.join(" and ")) }
}

/// CPU time of this thread and the time of the monotonic clock, in nanoseconds.
fn thread_times() -> [u64; 2] {
    [read_usage(UsageScope::Thread).cpu(), monotonic()]
}

fn times_since(start: [u64; 2]) -> [u64; 2] {
    let [cpu, clock] = thread_times();
    [cpu - start[0], clock - start[1]]
}

/// The receiving process: a thread for each stream.
fn receive_all(plan: &StreamPlan, links: &[Link], accounts: &[StreamCounters], board: &PartnerStatus) -> Result<()> {
    std::thread::scope(|scope| {
        let start = |((link, account), cpus): ((_, _), &StreamCpus)| {
            let cpu = cpus.receiver;
            let work = move || {
                cpu::pin(&[cpu])?;
                receive_stream(link, account, plan.message, board).inspect_err(|error| board.fail(error))
            };
            ThreadBuilder::named("receiver").start_in(scope, work).inspect_err(|error| board.fail(error))
        };
        let streams = links.iter().zip(accounts).zip(&plan.streams);
        let threads: Vec<_> = streams.map(start).collect::<Result<_>>()?;
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| Error::other("a receiver panicked"))?)
    })
}

/// Counts what arrives until the end of the stream.
fn receive_stream(link: &Link, account: &StreamCounters, size: usize, board: &PartnerStatus) -> Result<()> {
    let mut buffer = vec![0; size];
    let mut start = None;
    loop {
        match link.receive_available(&mut buffer) {
            Ok(0) => break,
            Ok(bytes) => {
                start.get_or_insert_with(thread_times);
                account.add(CounterIndex::Bytes, bytes as u64);
                if matches!(link, Link::Udp(_)) {
                    count_datagram(account, &buffer[..bytes])?;
                }
            }
            // The end of a stream is seen; datagrams have none.
            Err(error) if is_timeout(&error) && board.is_stopping() && matches!(link, Link::Udp(_)) => break,
            Err(error) if is_timeout(&error) => {}
            Err(error) => return Err(error),
        }
    }
    let [busy, elapsed] = start.map_or([0; 2], times_since);
    account.set(CounterIndex::Busy, busy);
    account.set(CounterIndex::Passed, elapsed);
    account.set(CounterIndex::Buffer, net::buffers(link)?.receive.into());
    Ok(())
}

/// Counts a datagram by its number.
fn count_datagram(account: &StreamCounters, datagram: &[u8]) -> Result<()> {
    let number = datagram.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
    let number = number.ok_or_else(|| Error::other("a datagram arrived without a number"))?;
    account.add(CounterIndex::Arrived, 1);
    if number > account.read(CounterIndex::Latest) {
        account.set(CounterIndex::Latest, number);
    } else {
        account.add(CounterIndex::Reordered, 1);
    }
    Ok(())
}

impl Link {
    /// Receives up to a buffer full, waiting for some; 0 at the end of a stream.
    fn receive_available(&self, buffer: &mut [u8]) -> Result<usize> {
        use std::io::Read;
        match self {
            Self::Tcp(stream) => { stream }.read(buffer),
            Self::Udp(socket) => socket.recv(buffer),
            Self::Unix(stream) => { stream }.read(buffer),
        }
    }

    /// Shuts the sending side; datagrams have no end to announce.
    fn shut_down(&self) {
        // A receiver that is gone already is no error.
        let _ = match self {
            Self::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Self::Udp(_) => Ok(()),
            Self::Unix(stream) => stream.shutdown(Shutdown::Both),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(protocol: Protocol, method: SendMethod, streams: u64) -> StreamPlan {
        let cpus = cpu::affinity().unwrap();
        StreamPlan { protocol, method, message: 4096, streams: place_streams(streams, &cpus, 1) }
    }

    #[test]
    fn bytes_arrive_by_all_protocols_and_methods() {
        let combinations = [
            (Protocol::Tcp, SendMethod::Send),
            (Protocol::Tcp, SendMethod::Sendfile),
            (Protocol::Tcp, SendMethod::Splice),
            (Protocol::Tcp, SendMethod::ZeroCopy),
            (Protocol::Udp, SendMethod::Send),
            (Protocol::Unix, SendMethod::Send),
        ];
        for (protocol, method) in combinations {
            let bulk = BulkStreams::start(plan(protocol, method, 2)).unwrap();
            let before = bulk.totals().unwrap();
            assert!(bulk.wait_until_settled().unwrap() >= SETTLE_WINDOW);
            let after = bulk.totals().unwrap();
            assert!(after.rate_since(&before) > 0.0, "{protocol:?} {method:?} {after:?}");
            // A message counts as sent when the call returns, which may be after it has arrived.
            let in_flight = 2 * 4096;
            assert!(after.sent + in_flight >= after.bytes && after.sent_since(&before) > 0.0, "{after:?}");
            assert_eq!(after.numbers.loss_share_since(&before.numbers).is_some(), protocol == Protocol::Udp);
            let StreamReport { words, max_cpu_share } = bulk.finish().unwrap();
            assert!(max_cpu_share >= 0.0, "{max_cpu_share}");
            assert!(words.contains("receiver on CPU") && words.contains("% busy"), "{words}");
            assert_eq!(words.contains("completed as copied"), method == SendMethod::ZeroCopy, "{words}");
        }
    }

    #[test]
    fn lost_receiver_is_reported() {
        let mut bulk = BulkStreams::start(plan(Protocol::Tcp, SendMethod::Send, 1)).unwrap();
        bulk.wait_until_settled().unwrap();
        // Killed and reaped.
        let exited = PartnerTask::start(PartnerKind::Process, cpu::affinity().unwrap()[0], |_| Ok(())).unwrap();
        drop(std::mem::replace(&mut bulk.receivers, exited));
        // Its senders see that at their next turn, which a busy machine may give them late.
        let is_reported = || {
            std::thread::sleep(Duration::from_millis(20));
            matches!(bulk.totals(), Err(ProbeError::Fail(_)))
        };
        assert!((0..LINK_TIMEOUT.as_millis() / 20).any(|_| is_reported()));
    }

    #[test]
    fn loss_and_reordering_follow_from_sequence() {
        let account = StreamCounters(Shared::new().unwrap());
        for number in [1u64, 2, 5, 4, 8] {
            count_datagram(&account, &number.to_le_bytes()).unwrap();
        }
        assert!(count_datagram(&account, &[1; 7]).is_err());
        let zero = StreamTotals { time: 0, bytes: 0, sent: 0, numbers: SequenceCounts::default() };
        let totals = StreamTotals {
            time: 2_000_000_000,
            bytes: 500,
            sent: 800,
            numbers: SequenceCounts {
                arrived: account.read(CounterIndex::Arrived),
                latest: account.read(CounterIndex::Latest),
                reordered: account.read(CounterIndex::Reordered),
            },
        };
        assert_eq!(totals.numbers.loss_share_since(&zero.numbers), Some(3.0 / 8.0));
        assert_eq!(totals.numbers.reordered_share_since(&zero.numbers), Some(1.0 / 5.0));
        assert_eq!((totals.rate_since(&zero), totals.sent_since(&zero)), (250.0, 400.0));
        assert_eq!(zero.numbers.loss_share_since(&zero.numbers), None);
        assert_eq!(zero.numbers.reordered_share_since(&zero.numbers), None);
    }

    #[test]
    fn saturated_cpu_is_named() {
        let end = |role, cpu, busy| EndUsage { role, cpu, busy, elapsed: 100 };
        let words = describe_load(&[end("sender", 0, 40), end("receiver", 1, 99)]);
        assert_eq!(words, "sender on CPU 0 40 % busy, receiver on CPU 1 99 % busy: CPU-limited, CPU 1 is full");
        let words = describe_load(&[end("sender", 0, 50), end("receiver", 0, 47)]);
        assert!(words.ends_with("CPU-limited, CPU 0 is full"), "{words}");
        assert!(!describe_load(&[end("sender", 0, 50), end("receiver", 1, 47)]).contains("limited"));
        let loads: Vec<(u32, f64)> =
            cpu_loads(&[end("sender", 0, 50), end("receiver", 1, 25), end("sender", 1, 50)]).collect();
        assert_eq!(loads, [(0, 0.5), (1, 0.75)]);
    }

    #[test]
    fn receivers_use_same_or_next_cpu() {
        let cpu_pairs = |streams, cpus: &[u32], receiver_offset| -> Vec<(u32, u32)> {
            place_streams(streams, cpus, receiver_offset).into_iter().map(|ends| (ends.sender, ends.receiver)).collect()
        };
        assert_eq!(cpu_pairs(1, &[3, 1], 1), [(3, 1)]);
        assert_eq!(cpu_pairs(3, &[3, 1], 1), [(3, 1), (1, 3), (3, 1)]);
        assert_eq!(cpu_pairs(3, &[3, 1], 0), [(3, 3), (1, 1), (3, 3)]);
        assert_eq!(cpu_pairs(1, &[7], 1), [(7, 7)]);
    }
}
