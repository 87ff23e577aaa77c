//! By which calls the bytes of larger files go to clients of one kind: those after which clients ask for more the soonest.
//!
//! A client here copies what is sent to it: by sendfile out of pages of the file, which are in no cache of a CPU, from a mapping out of
//! what the server has just copied. Which of them takes less time depends on the caches, on the size and on the client, so both are
//! tried on answers as they come. They alternate by slices of the clock, so that all threads try the same one at a time. What counts is
//! the time from the first call for an answer until its client sends more or ends the connection: what the client takes to copy it is
//! in it. Without a clear difference it is by the rule: from a mapping to clients on this host, by sendfile to others, where it takes
//! the least of the CPU.

use std::array;
use std::ops::Add;

/// By which calls an answer goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// From a mapping of the file.
    Mmap,
    /// By reference to the page cache.
    SendFile,
}

/// Where a client is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// On this host.
    Local,
    /// On another one.
    Remote,
}

/// The size of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Less than 128 KiB.
    Small,
    /// Less than 1 MiB.
    Medium,
    /// More.
    Large,
}

impl Path {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Mmap, Self::SendFile];
}

impl Peer {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Local, Self::Remote];

    /// The path without a clear difference, and the other one.
    fn paths(self) -> [Path; 2] {
        match self {
            Self::Local => [Path::Mmap, Path::SendFile],
            Self::Remote => [Path::SendFile, Path::Mmap],
        }
    }
}

impl Class {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Small, Self::Medium, Self::Large];

    fn of(bytes: u64) -> Self {
        match bytes {
            0..0x2_0000 => Self::Small,
            0x2_0000..0x10_0000 => Self::Medium,
            _ => Self::Large,
        }
    }
}

/// Nanoseconds for which one path is tried: a client of a hundred with large files has its answer in less.
const SLICE: u64 = 100_000_000;
/// Fewest answers of a slice that count: taken before it ended.
const LEAST_ANSWERS: u64 = 4;
/// Pairs of slices that are compared, and how many of them the other path must win to be taken: by chance it does in 7 of 64 trials, and
/// is then hardly slower.
const PAIRS: u32 = 6;
const PAIRS_WON: u32 = 5;
/// How much less time a byte must take by the other path.
const CLEARLY: f64 = 1.05;
/// Pairs with too few answers after which a trial ends by the rule.
const MOST_VOID: u32 = 20;
/// Nanoseconds until it is tried again, looked at with one of so many answers.
const HELD: u64 = 60_000_000_000;
const ANSWERS_PER_LOOK: u32 = 32;

/// An answer on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// By which calls it goes.
    pub path: Path,
    peer: Peer,
    class: Class,
    bytes: u64,
    /// When it began, if it is part of a trial.
    begun: Option<u64>,
}

impl Answer {
    /// The same by sendfile, because its file cannot be mapped: it is no part of a trial.
    pub fn not_mapped(self) -> Self {
        Self { path: Path::SendFile, begun: None, ..self }
    }
}

/// What was sent to clients of one kind by one path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Answers.
    pub answers: u64,
    /// Bytes of those answers of trials whose clients asked for more in time.
    pub bytes: u64,
    /// Nanoseconds from the first call for each until then.
    pub nanoseconds: u64,
}

impl Sent {
    /// Nanoseconds of a byte, by trials; none without any.
    pub fn of_a_byte(self) -> Option<f64> {
        (self.bytes > 0).then(|| self.nanoseconds as f64 / self.bytes as f64)
    }
}

impl Add for Sent {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            answers: self.answers + other.answers,
            bytes: self.bytes + other.bytes,
            nanoseconds: self.nanoseconds + other.nanoseconds,
        }
    }
}

/// What was sent by each path, to each kind of clients, of each size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Choices([[[Sent; 2]; 3]; 2]);

impl Choices {
    /// Numbers that it consists of.
    pub const WORDS: usize = 36;

    /// What was sent to these clients by this path.
    pub fn sent(&self, peer: Peer, class: Class, path: Path) -> Sent {
        self.0[peer as usize][class as usize][path as usize]
    }

    fn sent_mut(&mut self, peer: Peer, class: Class, path: Path) -> &mut Sent {
        &mut self.0[peer as usize][class as usize][path as usize]
    }

    /// Its numbers, for memory that processes share.
    pub fn words(&self) -> [u64; Self::WORDS] {
        let all = self.0.as_flattened().as_flattened();
        array::from_fn(|word| {
            let sent = all[word / 3];
            [sent.answers, sent.bytes, sent.nanoseconds][word % 3]
        })
    }

    /// From its numbers.
    pub fn of_words(words: [u64; Self::WORDS]) -> Self {
        let sent = |number: usize| Sent {
            answers: words[3 * number],
            bytes: words[3 * number + 1],
            nanoseconds: words[3 * number + 2],
        };
        Self(array::from_fn(|peer| array::from_fn(|class| array::from_fn(|path| sent((peer * 3 + class) * 2 + path)))))
    }
}

impl Add for Choices {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        let (left, right) = (self.words(), other.words());
        Self::of_words(array::from_fn(|word| left[word] + right[word]))
    }
}

/// Chooses for the clients of one thread.
#[derive(Debug, Default)]
pub struct Chooser {
    contests: [[Contest; 3]; 2],
    /// What was sent so far.
    pub choices: Choices,
}

/// The choice for one kind of clients and one size.
#[derive(Clone, Copy, Debug)]
enum Contest {
    /// Both are tried.
    Tried { pair: Option<u64>, sums: [Sent; 2], results: Results },
    /// The first or the second is taken until then; so many answers until the clock is looked at.
    Held { side: usize, until: u64, answers: u32 },
}

/// What pairs of slices have shown so far.
#[derive(Clone, Copy, Debug, Default)]
struct Results {
    pairs: u32,
    /// How many of them the second path won.
    won: u32,
    void: u32,
    /// Of each path.
    totals: [Sent; 2],
}

impl Default for Contest {
    fn default() -> Self {
        // The first answers go by the rule: with fewer there is nothing to be compared.
        Self::Held { side: 0, until: 0, answers: ANSWERS_PER_LOOK }
    }
}

/// The pair of slices at this time, and which of the two paths has it. In every other pair they change places.
fn slice(now: u64) -> (u64, usize) {
    let number = now / SLICE;
    (number / 2, ((number ^ (number / 2)) & 1) as usize)
}

impl Chooser {
    /// By which calls an answer of so many bytes goes that begins now, by a clock in nanoseconds.
    pub fn begin(&mut self, peer: Peer, bytes: u64, clock: impl Fn() -> u64) -> Answer {
        let class = Class::of(bytes);
        let contest = &mut self.contests[peer as usize][class as usize];
        let (path, begun) = contest.begin(peer.paths(), clock);
        self.choices.sent_mut(peer, class, path).answers += 1;
        Answer { path, peer, class, bytes, begun }
    }

    /// The client of an answer sends more now, or has ended the connection.
    pub fn taken(&mut self, answer: Answer, clock: impl Fn() -> u64) {
        let Answer { path, peer, class, bytes, begun } = answer;
        let Some(begun) = begun else { return };
        let now = clock();
        // One that ends in a later slice counts for neither: of both alike.
        if now / SLICE != begun / SLICE {
            return;
        }
        let sent = Sent { answers: 1, bytes, nanoseconds: now - begun };
        if let Contest::Tried { pair, sums, .. } = &mut self.contests[peer as usize][class as usize]
            && *pair == Some(slice(begun).0)
        {
            let sum = &mut sums[slice(begun).1];
            *sum = *sum + sent;
            let all = self.choices.sent_mut(peer, class, path);
            *all = *all + Sent { answers: 0, ..sent };
        }
    }
}

impl Contest {
    /// The path of an answer that begins, and when, if it is part of a trial.
    fn begin(&mut self, paths: [Path; 2], clock: impl Fn() -> u64) -> (Path, Option<u64>) {
        if let Self::Held { side, until, answers } = self {
            *answers = answers.saturating_sub(1);
            if *answers > 0 {
                return (paths[*side], None);
            }
            *answers = ANSWERS_PER_LOOK;
            if clock() < *until {
                return (paths[*side], None);
            }
            *self = Self::Tried { pair: None, sums: Default::default(), results: Results::default() };
        }
        let now = clock();
        let (current, side) = slice(now);
        if let Self::Tried { pair, sums, results } = self
            && *pair != Some(current)
        {
            let (before, sums) = (pair.replace(current), std::mem::take(sums));
            if before.is_some()
                && let Some(second) = results.add(sums)
            {
                let side = usize::from(second);
                *self = Self::Held { side, until: now + HELD, answers: ANSWERS_PER_LOOK };
                return (paths[side], None);
            }
        }
        (paths[side], Some(now))
    }
}

impl Results {
    /// Adds a pair of slices: whether the second path is taken, once that is known.
    fn add(&mut self, sums: [Sent; 2]) -> Option<bool> {
        if sums.iter().any(|sum| sum.answers < LEAST_ANSWERS) {
            self.void += 1;
            return (self.void == MOST_VOID).then_some(false);
        }
        self.pairs += 1;
        self.totals = array::from_fn(|side| self.totals[side] + sums[side]);
        let times = |sums: [Sent; 2]| sums.map(|sum| sum.of_a_byte().unwrap_or_default());
        let [first, second] = times(sums);
        self.won += u32::from(second < first);
        let [first, second] = times(self.totals);
        (self.pairs == PAIRS).then_some(self.won >= PAIRS_WON && CLEARLY * second < first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const SECOND: u64 = 1_000_000_000;

    /// Clients that ask one after the other from this time on, each a while after it has what it asked for; the time of an answer is
    /// by its path. The paths of all answers, and the time at the end.
    fn ask(
        chooser: &mut Chooser,
        peer: Peer,
        bytes: u64,
        (from, answers): (u64, usize),
        time: impl Fn(Path) -> u64,
    ) -> (Vec<Path>, u64) {
        let mut now = from;
        let paths = (0..answers).map(|_| {
            let answer = chooser.begin(peer, bytes, || now);
            now += time(answer.path);
            chooser.taken(answer, || now);
            answer.path
        });
        (paths.collect(), now)
    }

    fn times(mmap: u64, sendfile: u64) -> impl Fn(Path) -> u64 {
        move |path| if path == Path::Mmap { mmap } else { sendfile }
    }

    /// The path of the last of answers that take so many nanoseconds.
    fn settled(peer: Peer, mmap: u64, sendfile: u64) -> Path {
        let (paths, _) = ask(&mut Chooser::default(), peer, 2 * MIB, (SECOND, 5000), times(mmap, sendfile));
        let last = paths[4000];
        assert!(paths[4000..].iter().all(|&path| path == last));
        last
    }

    #[test]
    fn the_path_with_the_soonest_next_request_is_taken_and_else_the_rule() {
        for peer in Peer::ALL {
            assert_eq!(
                (settled(peer, 600_000, 1_000_000), settled(peer, 1_000_000, 600_000)),
                (Path::Mmap, Path::SendFile)
            );
            let rule = if peer == Peer::Local { Path::Mmap } else { Path::SendFile };
            assert_eq!(
                [
                    settled(peer, 1_000_000, 1_000_000),
                    settled(peer, 1_000_000, 980_000),
                    settled(peer, 980_000, 1_000_000)
                ],
                [rule; 3]
            );
        }
    }

    #[test]
    fn both_are_tried_equally_long_and_only_until_one_is_taken() {
        let mut chooser = Chooser::default();
        let (paths, end) = ask(&mut chooser, Peer::Local, 2 * MIB, (SECOND, 3000), times(2_000_000, 1_000_000));
        // The first answers, and seven pairs at most, of which the first may be incomplete: of those it has half of the time.
        let slower = paths.iter().filter(|&&path| path == Path::Mmap).count() as u64;
        assert!(slower * 2_000_000 <= 8 * SLICE && slower * 2_000_000 >= 5 * SLICE, "{slower}");
        // After a minute it is looked at again, and clients may be others by then.
        let (paths, _) = ask(&mut chooser, Peer::Local, 2 * MIB, (end + HELD, 5000), times(1_000_000, 2_000_000));
        assert_eq!(paths[4999], Path::Mmap);
    }

    #[test]
    fn kinds_of_clients_and_sizes_are_apart() {
        let mut chooser = Chooser::default();
        let (_, end) = ask(&mut chooser, Peer::Local, 64 << 10, (SECOND, 30_000), times(100_000, 60_000));
        let (_, end) = ask(&mut chooser, Peer::Local, 2 * MIB, (end, 5000), times(600_000, 900_000));
        let next = |chooser: &mut Chooser, peer, bytes| chooser.begin(peer, bytes, || end).path;
        assert_eq!(next(&mut chooser, Peer::Local, 64 << 10), Path::SendFile);
        assert_eq!(next(&mut chooser, Peer::Local, 2 * MIB), Path::Mmap);
        let choices = chooser.choices;
        let of = |path| choices.sent(Peer::Local, Class::Small, path).of_a_byte().map(|time| (time * 65536.0).round());
        assert_eq!([of(Path::Mmap), of(Path::SendFile)], [Some(100_000.0), Some(60_000.0)]);
        assert_eq!(choices.sent(Peer::Remote, Class::Small, Path::Mmap), Sent::default());
    }

    #[test]
    fn clients_that_take_long_or_seldom_ask_get_the_rule() {
        // Answers that take longer than a slice count for neither path.
        for (peer, rule) in [(Peer::Local, Path::Mmap), (Peer::Remote, Path::SendFile)] {
            let slow = times(if rule == Path::Mmap { 300_000_000 } else { 120_000_000 }, 250_000_000);
            let (paths, _) = ask(&mut Chooser::default(), peer, 2 * MIB, (SECOND, 300), slow);
            assert!(paths[80..200].iter().all(|&path| path == rule), "{peer:?}");
        }
    }

    #[test]
    fn answers_of_others_or_from_before_change_nothing() {
        let mut chooser = Chooser::default();
        let old = chooser.begin(Peer::Local, MIB, || SECOND);
        ask(&mut chooser, Peer::Local, MIB, (SECOND, 5000), times(600_000, 900_000));
        let before = chooser.choices;
        chooser.taken(old, || SECOND + 1);
        chooser.taken(Answer { begun: Some(SECOND), ..old }.not_mapped(), || SECOND + 1);
        assert_eq!(chooser.choices, before);
    }

    #[test]
    fn numbers_are_those_of_the_choices() {
        let words = array::from_fn(|word| word as u64);
        assert_eq!(Choices::of_words(words).words(), words);
        let sent = Choices::of_words(words).sent(Peer::Remote, Class::Large, Path::SendFile);
        assert_eq!(sent, Sent { answers: 33, bytes: 34, nanoseconds: 35 });
        assert_eq!((Choices::of_words(words) + Choices::of_words(words)).words(), words.map(|word| 2 * word));
    }
}
