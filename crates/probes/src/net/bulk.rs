//! Streams of bytes to another process, each sent by one thread and received by one thread, counted where they arrive.

use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use kelvin_catalogue::net::SendMethod;
use kelvin_harness::Stop;
use kelvin_sys::clock::monotonic;
use kelvin_sys::partner::{Board, PartnerTask, Task};
use kelvin_sys::shared::Shared;
use kelvin_sys::spawn::Thread;
use kelvin_sys::usage::{Who, usage};
use kelvin_sys::{Error, Result, cpu, net};
use kelvin_wire::busy::FULL;
use kelvin_wire::numbered::Numbered;

use super::link::{Link, Protocol, STUCK, is_late};
use super::sender::Sender;
use super::settle::{per_second, settle};

/// Windows in which a stream is watched until its rate no longer rises, and their limit.
const WINDOW: Duration = Duration::from_millis(5);
const MOST_WINDOWS: u32 = 20;
/// Time for which the rate of TCP streams between two CPUs rises, too slowly and unevenly for windows to show: over the first
/// 70 ms the mean of many streams of 64 KiB messages is a tenth to a sixth below the later one. On one CPU it settles within
/// the first windows.
const RISES_FOR: Duration = Duration::from_millis(70);

/// What is to be streamed.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub protocol: Protocol,
    pub way: SendMethod,
    /// Bytes of each call to send, and requested by each call to receive.
    pub message: usize,
    /// The CPUs of the two threads of each stream.
    pub streams: Vec<Ends>,
}

impl Plan {
    /// Whether its streams reach their full rate only after a while.
    fn rises_slowly(&self) -> bool {
        self.protocol == Protocol::Tcp && self.streams.iter().any(|ends| ends.sender != ends.receiver)
    }
}

/// The CPUs of a stream's sender and receiver.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends {
    pub sender: u32,
    pub receiver: u32,
}

/// So many streams whose senders take these CPUs in turn, each receiver so many CPUs further on: the same one, or the next.
pub(crate) fn placed(streams: u64, cpus: &[u32], further: usize) -> Vec<Ends> {
    let at = |number: usize| cpus[number % cpus.len()];
    (0..streams as usize).map(|number| Ends { sender: at(number), receiver: at(number + further) }).collect()
}

/// The counters of one stream, in memory that both processes share. Each is written by one thread.
#[derive(Debug)]
struct Account(Shared<[AtomicU64; Figure::Sent as usize + 1]>);

/// The counters. The sender's lie two cache lines from the receiver's: neither evicts the other's.
#[derive(Clone, Copy, Debug)]
enum Figure {
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

impl Account {
    fn read(&self, figure: Figure) -> u64 {
        self.0[figure as usize].load(Ordering::Relaxed)
    }

    fn set(&self, figure: Figure, value: u64) {
        self.0[figure as usize].store(value, Ordering::Relaxed);
    }

    /// Adds to a counter that this thread alone writes.
    fn add(&self, figure: Figure, value: u64) {
        self.set(figure, self.read(figure) + value);
    }
}

/// The totals of all streams at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Totals {
    /// Nanoseconds of the monotonic clock.
    at: u64,
    /// Bytes that have arrived.
    bytes: u64,
    sent: u64,
    numbers: Numbered,
}

impl Totals {
    /// Bytes a second that arrived since.
    pub(crate) fn rate_since(&self, earlier: &Self) -> f64 {
        per_second(self.bytes - earlier.bytes, self.at - earlier.at)
    }

    /// Bytes that arrived since.
    pub(crate) fn bytes_since(&self, earlier: &Self) -> u64 {
        self.bytes - earlier.bytes
    }

    /// Bytes a second that were sent since.
    pub(crate) fn sent_since(&self, earlier: &Self) -> f64 {
        per_second(self.sent - earlier.sent, self.at - earlier.at)
    }

    /// Share of the datagrams since then that did not arrive, by the gaps in their numbers; `None` if none arrived.
    pub(crate) fn lost_since(&self, earlier: &Self) -> Option<f64> {
        self.numbers.lost_since(&earlier.numbers)
    }

    /// Share of the datagrams that arrived since that came after one that was sent later.
    pub(crate) fn reordered_since(&self, earlier: &Self) -> Option<f64> {
        self.numbers.reordered_since(&earlier.numbers)
    }
}

/// CPU time that a thread used, and the time that passed meanwhile, in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Use {
    busy: u64,
    passed: u64,
}

fn starting(error: Error) -> Stop {
    Stop::fail(format!("cannot start the streams: {error}"))
}

/// What a sender reports when it ends.
#[derive(Debug)]
struct Ended {
    used: Use,
    /// What was achieved, where that may differ from what was asked.
    achieved: Option<String>,
}

/// What is known of streams that have ended.
#[derive(Debug)]
pub(crate) struct Known {
    /// Their sockets, and how busy each sender and receiver was, in words.
    pub words: String,
    /// The share of the time that the streams' senders and receivers kept a CPU busy, of the busiest CPU.
    pub fullest: f64,
}

/// Streams that run. Dropped, they are cut off.
#[derive(Debug)]
pub(crate) struct Bulk {
    plan: Plan,
    links: Arc<Vec<Link>>,
    accounts: Arc<Vec<Account>>,
    stop: Arc<AtomicBool>,
    senders: Vec<JoinHandle<Result<Ended>>>,
    board: Arc<Shared<Board>>,
    receivers: Option<PartnerTask>,
}

impl Bulk {
    /// Starts the receivers as threads of another process of this machine, and the senders as threads of this one.
    pub(crate) fn start(plan: Plan) -> std::result::Result<Self, Stop> {
        let pairs = plan.streams.iter().map(|_| Link::pair(plan.protocol)).collect::<Result<Vec<_>>>();
        Self::over(pairs.map_err(starting)?, plan)
    }

    /// The same over these connections, one for each stream of the plan; the sender's socket of each first.
    pub(crate) fn over(pairs: Vec<(Link, Link)>, plan: Plan) -> std::result::Result<Self, Stop> {
        let (mut near, mut far) = (Vec::new(), Vec::new());
        for (one, other) in pairs {
            one.allow_gathering().map_err(starting)?;
            // A sender whose receiver is gone must not wait for ever, nor a receiver of datagrams for their end.
            one.send_within(STUCK).map_err(starting)?;
            other.be_patient_for(WINDOW).map_err(starting)?;
            near.push(one);
            far.push(other);
        }
        let accounts = plan.streams.iter().map(|_| Shared::new().map(Account)).collect::<Result<Vec<_>>>();
        let accounts = Arc::new(accounts.map_err(starting)?);
        let board = Board::new().map_err(starting)?;
        let first = plan.streams.first().ok_or_else(|| Stop::fail("no stream was requested"))?.receiver;
        let (task, theirs) = (plan.clone(), Arc::clone(&accounts));
        let receivers =
            PartnerTask::start(Task::Process, first, &board, move |board| receive_all(&task, &far, &theirs, board));
        let mut bulk = Self {
            links: Arc::new(near),
            accounts,
            stop: Arc::new(AtomicBool::new(false)),
            senders: Vec::new(),
            board,
            receivers: Some(receivers.map_err(starting)?),
            plan,
        };
        bulk.start_senders().map_err(starting)?;
        Ok(bulk)
    }

    fn start_senders(&mut self) -> Result<()> {
        for (number, ends) in self.plan.streams.clone().into_iter().enumerate() {
            let (links, accounts, stop) = (Arc::clone(&self.links), Arc::clone(&self.accounts), Arc::clone(&self.stop));
            let (way, message) = (self.plan.way, self.plan.message);
            let sending = move || {
                cpu::pin(&[ends.sender])?;
                let sender = Sender::new(way, &links[number], message)?;
                let (busy, begun) = (used(), monotonic());
                let achieved = send_until(&stop, sender, &links[number], &accounts[number], message)?;
                Ok(Ended { used: Use { busy: used() - busy, passed: monotonic() - begun }, achieved })
            };
            self.senders.push(Thread::named("sender").start(sending)?);
        }
        Ok(())
    }

    /// Waits until the rate no longer rises, so that slow start and growing buffers are left out; how long that took.
    pub(crate) fn settle(&self) -> std::result::Result<Duration, Stop> {
        let begun = monotonic();
        if self.plan.rises_slowly() {
            std::thread::sleep(RISES_FOR);
        }
        settle(MOST_WINDOWS, || self.rate_over(WINDOW))?;
        Ok(Duration::from_nanos(monotonic() - begun))
    }

    /// Bytes a second that arrive over a time from now on.
    fn rate_over(&self, time: Duration) -> std::result::Result<f64, Stop> {
        let before = self.totals()?;
        std::thread::sleep(time);
        Ok(self.totals()?.rate_since(&before))
    }

    /// The totals so far.
    ///
    /// # Errors
    /// That a sender or receiver has failed.
    pub(crate) fn totals(&self) -> std::result::Result<Totals, Stop> {
        self.board.check().map_err(|error| Stop::fail(format!("the receiving process: {error}")))?;
        if self.senders.iter().any(JoinHandle::is_finished) {
            return Err(Stop::fail("a sender ended early"));
        }
        let sum = |figure| self.accounts.iter().map(|account| account.read(figure)).sum();
        Ok(Totals {
            at: monotonic(),
            bytes: sum(Figure::Bytes),
            sent: sum(Figure::Sent),
            numbers: Numbered {
                arrived: sum(Figure::Arrived),
                latest: sum(Figure::Latest),
                reordered: sum(Figure::Reordered),
            },
        })
    }

    /// Ends the streams; what is known of them.
    ///
    /// # Errors
    /// What went wrong in a sender or receiver.
    pub(crate) fn finish(mut self) -> std::result::Result<Known, Stop> {
        let link = self.links[0].describe()?;
        self.stop.store(true, Ordering::Relaxed);
        let mut parts = vec![link];
        let mut ends = Vec::new();
        for (sender, at) in self.senders.drain(..).zip(&self.plan.streams) {
            let ended = sender.join().map_err(|_| Stop::fail("a sender panicked"))?;
            let Ended { used, achieved } = ended.map_err(|error| Stop::fail(format!("a sender: {error}")))?;
            ends.push(End { what: "sender", cpu: at.sender, used });
            parts.extend(achieved);
        }
        self.cut_off();
        if let Some(receivers) = self.receivers.take() {
            receivers.join(&self.board).map_err(|error| Stop::fail(format!("the receiving process: {error}")))?;
        }
        // Of the first stream, like the rest of its socket's facts: the others are made in the same way.
        parts.push(format!("the receiver's has {} KiB to receive", self.accounts[0].read(Figure::Buffer) >> 10));
        for (account, at) in self.accounts.iter().zip(&self.plan.streams) {
            let used = Use { busy: account.read(Figure::Busy), passed: account.read(Figure::Passed) };
            ends.push(End { what: "receiver", cpu: at.receiver, used });
        }
        parts.push(busy_words(&ends));
        parts.dedup();
        Ok(Known { words: parts.join("; "), fullest: loads(&ends).map(|(_, load)| load).fold(0.0, f64::max) })
    }

    /// Shows the receivers the end.
    fn cut_off(&self) {
        self.board.stop();
        self.links.iter().for_each(Link::end);
    }
}

impl Drop for Bulk {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.cut_off();
        for sender in self.senders.drain(..) {
            // Whoever drops this early has reported what went wrong.
            let _ = sender.join();
        }
    }
}

/// The sender or receiver of a stream, and the CPU time it used.
struct End {
    what: &'static str,
    cpu: u32,
    used: Use,
}

fn share(used: Use) -> f64 {
    used.busy as f64 / used.passed.max(1) as f64
}

/// The CPUs of senders and receivers, each with the share of the time that they kept it busy.
fn loads(ends: &[End]) -> impl Iterator<Item = (u32, f64)> {
    let mut cpus: Vec<u32> = ends.iter().map(|end| end.cpu).collect();
    cpus.sort_unstable();
    cpus.dedup();
    let load = |cpu| ends.iter().filter(|end| end.cpu == cpu).map(|end| share(end.used)).sum::<f64>();
    cpus.into_iter().map(move |cpu| (cpu, load(cpu)))
}

/// How busy each sender and receiver was, and which CPUs were full, in words.
fn busy_words(ends: &[End]) -> String {
    let each: Vec<String> = ends
        .iter()
        .map(|end| format!("{} on CPU {} {:.0} % busy", end.what, end.cpu, 100.0 * share(end.used)))
        .collect();
    let full: Vec<String> = loads(ends).filter(|&(_, load)| load >= FULL).map(|(cpu, _)| cpu.to_string()).collect();
    let each = each.join(", ");
    if full.is_empty() { each } else { format!("{each}: CPU-limited, CPU {} is full", full.join(" and ")) }
}

/// CPU time of this thread, in nanoseconds.
fn used() -> u64 {
    let used = usage(Who::Thread);
    used.user + used.system
}

/// Sends until stopped; what was achieved, where that may differ from what was asked.
fn send_until(
    stop: &AtomicBool,
    mut sender: Sender,
    link: &Link,
    account: &Account,
    bytes: usize,
) -> Result<Option<String>> {
    while !stop.load(Ordering::Relaxed) {
        sender.send(link)?;
        account.add(Figure::Sent, bytes as u64);
    }
    sender.achieved(link)
}

/// The receiving process: a thread for each stream.
fn receive_all(plan: &Plan, links: &[Link], accounts: &[Account], board: &Board) -> Result<()> {
    std::thread::scope(|scope| {
        let all: Vec<_> = links
            .iter()
            .zip(accounts)
            .zip(&plan.streams)
            .map(|((link, account), at)| {
                let work = move || {
                    cpu::pin(&[at.receiver])?;
                    receive(link, account, plan.message, board).inspect_err(|error| board.fail(error))
                };
                Thread::named("receiver").start_in(scope, work).inspect_err(|error| board.fail(error))
            })
            .collect::<Result<_>>()?;
        all.into_iter().try_for_each(|thread| thread.join().map_err(|_| Error::other("a receiver panicked"))?)
    })
}

/// Counts what arrives until the end of the stream.
fn receive(link: &Link, account: &Account, size: usize, board: &Board) -> Result<()> {
    let mut buffer = vec![0; size];
    let mut begun = None;
    loop {
        match link.receive_some(&mut buffer) {
            Ok(0) => break,
            Ok(bytes) => {
                begun.get_or_insert_with(|| (used(), monotonic()));
                account.add(Figure::Bytes, bytes as u64);
                if matches!(link, Link::Udp(_)) {
                    count_datagram(account, &buffer[..bytes])?;
                }
            }
            // The end of a stream is seen; datagrams have none.
            Err(error) if is_late(&error) => {
                if board.stopping() && matches!(link, Link::Udp(_)) {
                    break;
                }
            }
            Err(error) => return Err(error),
        }
    }
    if let Some((busy, at)) = begun {
        account.set(Figure::Busy, used() - busy);
        account.set(Figure::Passed, monotonic() - at);
    }
    account.set(Figure::Buffer, net::buffers(link)?.receive.into());
    Ok(())
}

/// Counts a datagram by its number.
fn count_datagram(account: &Account, datagram: &[u8]) -> Result<()> {
    let number = datagram.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
    let number = number.ok_or_else(|| Error::other("a datagram arrived without a number"))?;
    account.add(Figure::Arrived, 1);
    if number > account.read(Figure::Latest) {
        account.set(Figure::Latest, number);
    } else {
        account.add(Figure::Reordered, 1);
    }
    Ok(())
}

impl Link {
    /// Lets the kernel gather small writes into packets, as it does by default.
    fn allow_gathering(&self) -> Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_nodelay(false),
            Self::Udp(_) | Self::Unix(_) => Ok(()),
        }
    }

    /// Makes a send that waits longer than this fail.
    fn send_within(&self, limit: Duration) -> Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_write_timeout(Some(limit)),
            Self::Udp(socket) => socket.set_write_timeout(Some(limit)),
            Self::Unix(stream) => stream.set_write_timeout(Some(limit)),
        }
    }

    /// Receives up to a buffer full, waiting for some; 0 at the end of a stream.
    fn receive_some(&self, buffer: &mut [u8]) -> Result<usize> {
        use std::io::Read;
        match self {
            Self::Tcp(stream) => { stream }.read(buffer),
            Self::Udp(socket) => socket.recv(buffer),
            Self::Unix(stream) => { stream }.read(buffer),
        }
    }

    /// Shuts the sending side; datagrams have no end to announce.
    fn end(&self) {
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

    fn plan(protocol: Protocol, way: SendMethod, streams: u64) -> Plan {
        let cpus = cpu::allowed().unwrap();
        Plan { protocol, way, message: 4096, streams: placed(streams, &cpus, 1) }
    }

    #[test]
    fn bytes_arrive_by_every_protocol_and_way() {
        let all = [
            (Protocol::Tcp, SendMethod::Send),
            (Protocol::Tcp, SendMethod::Sendfile),
            (Protocol::Tcp, SendMethod::Splice),
            (Protocol::Tcp, SendMethod::ZeroCopy),
            (Protocol::Udp, SendMethod::Send),
            (Protocol::Unix, SendMethod::Send),
        ];
        for (protocol, way) in all {
            let bulk = Bulk::start(plan(protocol, way, 2)).unwrap();
            let before = bulk.totals().unwrap();
            assert!(bulk.settle().unwrap() >= WINDOW);
            let after = bulk.totals().unwrap();
            assert!(after.rate_since(&before) > 0.0, "{protocol:?} {way:?} {after:?}");
            // A message counts as sent when the call returns, which may be after it has arrived.
            let in_flight = 2 * 4096;
            assert!(after.sent + in_flight >= after.bytes && after.sent_since(&before) > 0.0, "{after:?}");
            assert_eq!(after.lost_since(&before).is_some(), protocol == Protocol::Udp);
            let Known { words, fullest } = bulk.finish().unwrap();
            assert!(fullest >= 0.0, "{fullest}");
            assert!(words.contains("receiver on CPU") && words.contains("% busy"), "{words}");
            assert_eq!(words.contains("completed as copied"), way == SendMethod::ZeroCopy, "{words}");
        }
    }

    #[test]
    fn a_receiver_that_is_gone_is_reported() {
        let mut bulk = Bulk::start(plan(Protocol::Tcp, SendMethod::Send, 1)).unwrap();
        bulk.settle().unwrap();
        // Killed and reaped.
        drop(bulk.receivers.take());
        // Its senders see that at their next turn, which a busy machine may give them late.
        let is_reported = || {
            std::thread::sleep(Duration::from_millis(20));
            matches!(bulk.totals(), Err(Stop::Fail(_)))
        };
        assert!((0..STUCK.as_millis() / 20).any(|_| is_reported()));
    }

    #[test]
    fn loss_and_order_follow_from_the_numbers() {
        let account = Account(Shared::new().unwrap());
        for number in [1u64, 2, 5, 4, 8] {
            count_datagram(&account, &number.to_le_bytes()).unwrap();
        }
        assert!(count_datagram(&account, &[1; 7]).is_err());
        let zero = Totals { at: 0, bytes: 0, sent: 0, numbers: Numbered::default() };
        let totals = Totals {
            at: 2_000_000_000,
            bytes: 500,
            sent: 800,
            numbers: Numbered {
                arrived: account.read(Figure::Arrived),
                latest: account.read(Figure::Latest),
                reordered: account.read(Figure::Reordered),
            },
        };
        assert_eq!(totals.lost_since(&zero), Some(3.0 / 8.0));
        assert_eq!(totals.reordered_since(&zero), Some(1.0 / 5.0));
        assert_eq!((totals.rate_since(&zero), totals.sent_since(&zero)), (250.0, 400.0));
        assert_eq!((zero.lost_since(&zero), zero.reordered_since(&zero)), (None, None));
    }

    #[test]
    fn a_full_cpu_is_named_also_when_two_ends_fill_it_together() {
        let end = |what, cpu, busy| End { what, cpu, used: Use { busy, passed: 100 } };
        let words = busy_words(&[end("sender", 0, 40), end("receiver", 1, 99)]);
        assert_eq!(words, "sender on CPU 0 40 % busy, receiver on CPU 1 99 % busy: CPU-limited, CPU 1 is full");
        let words = busy_words(&[end("sender", 0, 50), end("receiver", 0, 47)]);
        assert!(words.ends_with("CPU-limited, CPU 0 is full"), "{words}");
        assert!(!busy_words(&[end("sender", 0, 50), end("receiver", 1, 47)]).contains("limited"));
        let both: Vec<(u32, f64)> =
            loads(&[end("sender", 0, 50), end("receiver", 1, 25), end("sender", 1, 50)]).collect();
        assert_eq!(both, [(0, 0.5), (1, 0.75)]);
    }

    #[test]
    fn each_stream_receives_on_the_same_cpu_or_the_next() {
        let of = |streams, cpus: &[u32], further| -> Vec<(u32, u32)> {
            placed(streams, cpus, further).into_iter().map(|ends| (ends.sender, ends.receiver)).collect()
        };
        assert_eq!(of(1, &[3, 1], 1), [(3, 1)]);
        assert_eq!(of(3, &[3, 1], 1), [(3, 1), (1, 3), (3, 1)]);
        assert_eq!(of(3, &[3, 1], 0), [(3, 3), (1, 1), (3, 3)]);
        assert_eq!(of(1, &[7], 1), [(7, 7)]);
    }
}
