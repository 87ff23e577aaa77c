//! By which calls the bytes of larger files go to clients of one kind: those after which clients ask for more the soonest.
//!
//! A client here copies what is sent to it: by sendfile out of pages of the file, which are in no cache of a CPU, from a mapping out of
//! what the server has just copied. Which of them takes less time depends on the caches, on the size and on the client, so both are
//! tried on answers as they come. They alternate by slices of the clock, so that all threads try the same one at a time. What counts is
//! the time from the first call for an answer until its client sends more or ends the connection: what the client takes to copy it is
//! in it. Without a clear difference it is by the rule: from a mapping to clients on this host, by sendfile to others, where it takes
//! the least of the CPU.

use std::ops::AddAssign;

/// By which calls an answer goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BulkMethod {
    /// From a mapping of the file.
    Mmap,
    /// By reference to the page cache.
    SendFile,
}

/// Where a client is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerLocality {
    /// On this host.
    Local,
    /// On another one.
    Remote,
}

/// The size of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeClass {
    /// Less than 128 KiB.
    Small,
    /// Less than 1 MiB.
    Medium,
    /// More.
    Large,
}

impl BulkMethod {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Mmap, Self::SendFile];
}

impl PeerLocality {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Local, Self::Remote];

    /// The path without a clear difference, and the other one.
    fn methods(self) -> [BulkMethod; 2] {
        match self {
            Self::Local => [BulkMethod::Mmap, BulkMethod::SendFile],
            Self::Remote => [BulkMethod::SendFile, BulkMethod::Mmap],
        }
    }
}

impl SizeClass {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Small, Self::Medium, Self::Large];

    fn for_bytes(bytes: u64) -> Self {
        match bytes {
            0..0x2_0000 => Self::Small,
            0x2_0000..0x10_0000 => Self::Medium,
            _ => Self::Large,
        }
    }
}

/// Nanoseconds for which one path is tried: a client of a hundred with large files has its answer in less.
const SLICE_NANOSECONDS: u64 = 100_000_000;
/// Fewest answers of a slice that count: taken before it ended.
const MIN_SLICE_ANSWERS: u64 = 4;
/// Pairs of slices that are compared, and how many of them the other path must win to be taken: by chance it does in 7 of 64 trials, and
/// is then hardly slower.
const PAIRS_COMPARED: u32 = 6;
const MIN_PAIRS_WON: u32 = 5;
/// How much less time a byte must take by the other path.
const MIN_SPEEDUP: f64 = 1.05;
/// Pairs with too few answers after which a trial ends by the rule.
const MAX_VOID_PAIRS: u32 = 20;
/// Nanoseconds until it is tried again, looked at with one of this many answers.
const HOLD_NANOSECONDS: u64 = 60_000_000_000;
const ANSWERS_PER_CLOCK_READ: u32 = 32;

/// An answer on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BulkResponse {
    /// By which calls it goes.
    pub method: BulkMethod,
    peer: PeerLocality,
    class: SizeClass,
    bytes: u64,
    /// When it began, if it is part of a trial.
    trial_start: Option<u64>,
}

impl BulkResponse {
    /// This answer by sendfile, because its file cannot be mapped: it is no part of a trial.
    pub fn with_sendfile(self) -> Self {
        Self { method: BulkMethod::SendFile, trial_start: None, ..self }
    }
}

/// What was sent to clients of one kind by one path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BulkTotals {
    /// Answers.
    pub answers: u64,
    /// Bytes of those answers of trials whose clients asked for more in time.
    pub bytes: u64,
    /// Nanoseconds from the first call for each until then.
    pub nanoseconds: u64,
}

impl BulkTotals {
    /// Nanoseconds of a byte, by trials; none without any.
    pub fn nanoseconds_per_byte(self) -> Option<f64> {
        (self.bytes > 0).then(|| self.nanoseconds as f64 / self.bytes as f64)
    }
}

impl AddAssign for BulkTotals {
    fn add_assign(&mut self, other: Self) {
        self.answers += other.answers;
        self.bytes += other.bytes;
        self.nanoseconds += other.nanoseconds;
    }
}

/// What was sent by each path, to each kind of clients, of each size: numbers for memory that processes share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BulkStats(pub [u64; Self::WORDS]);

impl Default for BulkStats {
    fn default() -> Self {
        Self([0; Self::WORDS])
    }
}

impl BulkStats {
    /// Numbers that it consists of.
    pub const WORDS: usize = 36;

    /// What was sent to these clients by this path.
    pub fn totals(&self, peer: PeerLocality, class: SizeClass, path: BulkMethod) -> BulkTotals {
        let first = Self::first_word(peer, class, path);
        BulkTotals { answers: self.0[first], bytes: self.0[first + 1], nanoseconds: self.0[first + 2] }
    }

    fn first_word(peer: PeerLocality, class: SizeClass, path: BulkMethod) -> usize {
        3 * ((peer as usize * 3 + class as usize) * 2 + path as usize)
    }
}

/// Chooses for the clients of one thread.
#[derive(Debug, Default)]
pub struct BulkChooser {
    trials: [[BulkTrial; 3]; 2],
    /// What was sent so far.
    pub stats: BulkStats,
}

/// The choice for one kind of clients and one size.
#[derive(Clone, Copy, Debug)]
enum BulkTrial {
    /// Both are tried.
    Running { pair: Option<u64>, sums: [BulkTotals; 2], results: TrialResults },
    /// The first or the second is taken until then; this many answers until the clock is looked at.
    Settled { side: usize, until: u64, answers: u32 },
}

/// What pairs of slices have shown so far.
#[derive(Clone, Copy, Debug, Default)]
struct TrialResults {
    pairs: u32,
    /// How many of them the second path won.
    won_by_second: u32,
    void_pairs: u32,
    /// Of each path.
    totals: [BulkTotals; 2],
}

impl Default for BulkTrial {
    fn default() -> Self {
        // The first answers go by the rule: with fewer there is nothing to be compared.
        Self::Settled { side: 0, until: 0, answers: ANSWERS_PER_CLOCK_READ }
    }
}

/// The pair of slices at this time, and which of the two paths has it. In every other pair they change places.
fn slice_pair_and_side(now: u64) -> (u64, usize) {
    let number = now / SLICE_NANOSECONDS;
    (number / 2, ((number ^ (number / 2)) & 1) as usize)
}

impl BulkChooser {
    /// By which calls an answer of this many bytes goes that begins now, by a clock in nanoseconds.
    pub fn begin(&mut self, peer: PeerLocality, bytes: u64, clock: impl Fn() -> u64) -> BulkResponse {
        let class = SizeClass::for_bytes(bytes);
        let trial = &mut self.trials[peer as usize][class as usize];
        let (method, trial_start) = trial.next_method(peer.methods(), clock);
        self.stats.0[BulkStats::first_word(peer, class, method)] += 1;
        BulkResponse { method, peer, class, bytes, trial_start }
    }

    /// The client of an answer sends more now, or has ended the connection.
    pub fn record(&mut self, answer: BulkResponse, clock: impl Fn() -> u64) {
        let BulkResponse { method, peer, class, bytes, trial_start: start } = answer;
        let Some(start) = start else { return };
        let now = clock();
        // One that ends in a later slice counts for neither: of both alike.
        if now / SLICE_NANOSECONDS != start / SLICE_NANOSECONDS {
            return;
        }
        let totals = BulkTotals { answers: 1, bytes, nanoseconds: now - start };
        if let BulkTrial::Running { pair, sums, .. } = &mut self.trials[peer as usize][class as usize]
            && *pair == Some(slice_pair_and_side(start).0)
        {
            sums[slice_pair_and_side(start).1] += totals;
            let first = BulkStats::first_word(peer, class, method);
            self.stats.0[first + 1] += totals.bytes;
            self.stats.0[first + 2] += totals.nanoseconds;
        }
    }
}

impl BulkTrial {
    /// The path of an answer that begins, and when, if it is part of a trial.
    fn next_method(&mut self, paths: [BulkMethod; 2], clock: impl Fn() -> u64) -> (BulkMethod, Option<u64>) {
        if let Self::Settled { side, until, answers } = self {
            *answers = answers.saturating_sub(1);
            if *answers > 0 {
                return (paths[*side], None);
            }
            *answers = ANSWERS_PER_CLOCK_READ;
            if clock() < *until {
                return (paths[*side], None);
            }
            *self = Self::Running { pair: None, sums: Default::default(), results: TrialResults::default() };
        }
        let now = clock();
        let (current, side) = slice_pair_and_side(now);
        if let Self::Running { pair, sums, results } = self
            && *pair != Some(current)
        {
            let (previous_pair, sums) = (pair.replace(current), std::mem::take(sums));
            if previous_pair.is_some()
                && let Some(second) = results.add(sums)
            {
                let side = usize::from(second);
                *self = Self::Settled { side, until: now + HOLD_NANOSECONDS, answers: ANSWERS_PER_CLOCK_READ };
                return (paths[side], None);
            }
        }
        (paths[side], Some(now))
    }
}

impl TrialResults {
    /// Adds a pair of slices: whether the second path is taken, once that is known.
    fn add(&mut self, sums: [BulkTotals; 2]) -> Option<bool> {
        if sums.iter().any(|sum| sum.answers < MIN_SLICE_ANSWERS) {
            self.void_pairs += 1;
            return (self.void_pairs == MAX_VOID_PAIRS).then_some(false);
        }
        self.pairs += 1;
        self.totals.iter_mut().zip(sums).for_each(|(total, sum)| *total += sum);
        let times = |sums: [BulkTotals; 2]| sums.map(|sum| sum.nanoseconds_per_byte().unwrap_or_default());
        let [first, second] = times(sums);
        self.won_by_second += u32::from(second < first);
        let [first, second] = times(self.totals);
        (self.pairs == PAIRS_COMPARED).then_some(self.won_by_second >= MIN_PAIRS_WON && MIN_SPEEDUP * second < first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::ServerTotals;

    const MIB: u64 = 1 << 20;
    const SECOND: u64 = 1_000_000_000;

    /// Clients that ask one after the other from this time on, each a while after it has what it asked for; the time of an answer is
    /// by its path. The paths of all answers, and the time at the end.
    fn run_clients(
        chooser: &mut BulkChooser,
        peer: PeerLocality,
        bytes: u64,
        (start, answers): (u64, usize),
        time: impl Fn(BulkMethod) -> u64,
    ) -> (Vec<BulkMethod>, u64) {
        let mut now = start;
        let paths = (0..answers).map(|_| {
            let answer = chooser.begin(peer, bytes, || now);
            now += time(answer.method);
            chooser.record(answer, || now);
            answer.method
        });
        (paths.collect(), now)
    }

    fn method_times(mmap: u64, sendfile: u64) -> impl Fn(BulkMethod) -> u64 {
        move |path| if path == BulkMethod::Mmap { mmap } else { sendfile }
    }

    /// The path of the last of answers that take this many nanoseconds.
    fn settled_method(peer: PeerLocality, mmap: u64, sendfile: u64) -> BulkMethod {
        let (paths, _) =
            run_clients(&mut BulkChooser::default(), peer, 2 * MIB, (SECOND, 5000), method_times(mmap, sendfile));
        let last = paths[4000];
        assert!(paths[4000..].iter().all(|&path| path == last));
        last
    }

    #[test]
    fn method_with_earliest_next_request_wins() {
        for peer in PeerLocality::ALL {
            assert_eq!(
                (settled_method(peer, 600_000, 1_000_000), settled_method(peer, 1_000_000, 600_000)),
                (BulkMethod::Mmap, BulkMethod::SendFile)
            );
            let rule = if peer == PeerLocality::Local { BulkMethod::Mmap } else { BulkMethod::SendFile };
            assert_eq!(
                [
                    settled_method(peer, 1_000_000, 1_000_000),
                    settled_method(peer, 1_000_000, 980_000),
                    settled_method(peer, 980_000, 1_000_000)
                ],
                [rule; 3]
            );
        }
    }

    #[test]
    fn trial_alternates_methods_until_settled() {
        let mut chooser = BulkChooser::default();
        let (paths, end) =
            run_clients(&mut chooser, PeerLocality::Local, 2 * MIB, (SECOND, 3000), method_times(2_000_000, 1_000_000));
        // The first answers, and seven pairs at most, of which the first may be incomplete: of those it has half of the time.
        let slower = paths.iter().filter(|&&path| path == BulkMethod::Mmap).count() as u64;
        assert!(slower * 2_000_000 <= 8 * SLICE_NANOSECONDS && slower * 2_000_000 >= 5 * SLICE_NANOSECONDS, "{slower}");
        // After a minute it is looked at again, and clients may be others by then.
        let (paths, _) = run_clients(
            &mut chooser,
            PeerLocality::Local,
            2 * MIB,
            (end + HOLD_NANOSECONDS, 5000),
            method_times(1_000_000, 2_000_000),
        );
        assert_eq!(paths[4999], BulkMethod::Mmap);
    }

    #[test]
    fn localities_and_sizes_are_independent() {
        let mut chooser = BulkChooser::default();
        let (_, end) =
            run_clients(&mut chooser, PeerLocality::Local, 64 << 10, (SECOND, 30_000), method_times(100_000, 60_000));
        let (_, end) =
            run_clients(&mut chooser, PeerLocality::Local, 2 * MIB, (end, 5000), method_times(600_000, 900_000));
        let next = |chooser: &mut BulkChooser, peer, bytes| chooser.begin(peer, bytes, || end).method;
        assert_eq!(next(&mut chooser, PeerLocality::Local, 64 << 10), BulkMethod::SendFile);
        assert_eq!(next(&mut chooser, PeerLocality::Local, 2 * MIB), BulkMethod::Mmap);
        let choices = chooser.stats;
        let rounded_time = |path| {
            choices
                .totals(PeerLocality::Local, SizeClass::Small, path)
                .nanoseconds_per_byte()
                .map(|time| (time * 65536.0).round())
        };
        assert_eq!(
            [rounded_time(BulkMethod::Mmap), rounded_time(BulkMethod::SendFile)],
            [Some(100_000.0), Some(60_000.0)]
        );
        assert_eq!(choices.totals(PeerLocality::Remote, SizeClass::Small, BulkMethod::Mmap), BulkTotals::default());
    }

    #[test]
    fn slow_or_rare_clients_get_default() {
        // Answers that take longer than a slice count for neither path.
        for (peer, rule) in [(PeerLocality::Local, BulkMethod::Mmap), (PeerLocality::Remote, BulkMethod::SendFile)] {
            let times = method_times(if rule == BulkMethod::Mmap { 300_000_000 } else { 120_000_000 }, 250_000_000);
            let (paths, _) = run_clients(&mut BulkChooser::default(), peer, 2 * MIB, (SECOND, 300), times);
            assert!(paths[80..200].iter().all(|&path| path == rule), "{peer:?}");
        }
    }

    #[test]
    fn stale_answers_are_ignored() {
        let mut chooser = BulkChooser::default();
        let old = chooser.begin(PeerLocality::Local, MIB, || SECOND);
        run_clients(&mut chooser, PeerLocality::Local, MIB, (SECOND, 5000), method_times(600_000, 900_000));
        let before = chooser.stats;
        chooser.record(old, || SECOND + 1);
        chooser.record(BulkResponse { trial_start: Some(SECOND), ..old }.with_sendfile(), || SECOND + 1);
        assert_eq!(chooser.stats, before);
    }

    #[test]
    fn bulk_stats_words_round_trip() {
        let words = std::array::from_fn(|word| word as u64);
        let sent = BulkStats(words).totals(PeerLocality::Remote, SizeClass::Large, BulkMethod::SendFile);
        assert_eq!(sent, BulkTotals { answers: 33, bytes: 34, nanoseconds: 35 });
        let totals = ServerTotals { bulk: BulkStats(words), ..ServerTotals::default() };
        assert_eq!((totals + totals).bulk.0, words.map(|word| 2 * word));
    }
}
