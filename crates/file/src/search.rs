//! The fastest way of reading a file, and its number of threads, found while the file is read.
//!
//! Pure: it receives the time of each piece of the file, and says how to read the next one. Each thread reads pieces in every
//! way in turn, then goes on with the best one; when all have done so there are twice as many threads, until that is no faster.
//! No thread waits for another.

use kelvin_stats::median;

/// Times that each thread tries each way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rounds {
    /// To have buffers and mappings made.
    pub(crate) warm_up: usize,
    /// Of which the median counts.
    pub(crate) counted: usize,
}

/// How much faster another way must be than the one remembered or found first, or a number of threads than half of it: an equal
/// one is not worth a change.
const WORTH: f64 = 1.05;

/// A thread's next piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    /// The way, by its place among the candidates.
    pub(crate) way: usize,
    /// Whether it is a part of the search.
    pub(crate) trial: bool,
    stage: u32,
    counted: bool,
}

/// A search over so many ways and up to so many threads.
#[derive(Clone, Debug)]
pub(crate) struct Search {
    /// Rates of the pieces read in each way by this number of threads, in bytes a nanosecond; none for an unavailable way.
    ways: Vec<Option<Vec<f64>>>,
    rounds: Rounds,
    best: usize,
    threads: u32,
    most: u32,
    stage: u32,
    /// Pieces that each thread has begun and ended in this stage.
    begun: Vec<usize>,
    ended: Vec<usize>,
    /// The setting before the last growth, and its rate.
    before: Option<(usize, u32, f64)>,
    settled: bool,
    /// Whether it has ended by its trials, and not because there was nothing to try.
    found: bool,
}

impl Search {
    /// Begins with this way and number of threads.
    pub(crate) fn new(ways: usize, rounds: Rounds, (way, threads): (usize, u32), most: u32) -> Self {
        let mut search = Self {
            ways: vec![Some(Vec::new()); ways],
            rounds,
            best: way,
            threads: threads.clamp(1, most.max(1)),
            most: most.max(1),
            stage: 0,
            begun: Vec::new(),
            ended: Vec::new(),
            before: None,
            settled: false,
            found: false,
        };
        search.forget();
        search
    }

    /// The way that is best so far.
    pub(crate) fn best(&self) -> usize {
        self.best
    }

    /// Threads that are to read now.
    pub(crate) fn threads(&self) -> u32 {
        self.threads
    }

    /// Whether it has ended by itself: its setting is a result.
    pub(crate) fn found(&self) -> bool {
        self.found
    }

    /// Reports that there can be no more than so many threads.
    pub(crate) fn limit_threads(&mut self, threads: u32) {
        self.most = threads.clamp(1, self.most);
        if self.threads > self.most {
            // What was tried with fewer is what there is to go back to.
            self.before = self.before.filter(|&(_, before, _)| before < self.most);
            self.threads = self.most;
            self.forget();
        }
    }

    /// Ends it before it has begun: its setting is the initial one.
    pub(crate) fn settle(&mut self) {
        self.settled = true;
    }

    /// Pieces that the stage with this number of threads takes.
    pub(crate) fn pieces(&self, threads: u32) -> u64 {
        self.trials() as u64 * u64::from(threads)
    }

    /// Threads of the stage after this one.
    fn more_threads(&self) -> u32 {
        self.threads.saturating_mul(2).min(self.most)
    }

    /// A thread's next piece; nothing if it is one too many.
    pub(crate) fn next(&mut self, thread: u32) -> Option<Turn> {
        if thread >= self.threads {
            return None;
        }
        let begun = if self.settled { usize::MAX } else { self.begun[thread as usize] };
        let there: Vec<usize> = (0..self.ways.len()).filter(|&way| self.ways[way].is_some()).collect();
        if begun >= self.trials() || there.is_empty() {
            return Some(Turn { way: self.best, trial: false, stage: self.stage, counted: false });
        }
        self.begun[thread as usize] += 1;
        // Every thread begins with another way, so that the shared hardware is tried in all ways at once.
        let way = there[(begun + thread as usize) % there.len()];
        Some(Turn { way, trial: true, stage: self.stage, counted: begun / there.len() >= self.rounds.warm_up })
    }

    /// Reports that a way is unavailable; whether there is another one.
    pub(crate) fn leave_out(&mut self, way: usize) -> bool {
        // Another thread may have reported it already.
        if self.ways[way].take().is_some() {
            // The counts would not come out even: the stage begins anew.
            self.forget();
        }
        match self.ways.iter().position(Option::is_some) {
            Some(first) => {
                if self.best == way {
                    self.best = first;
                }
                true
            }
            None => false,
        }
    }

    /// Reports a piece, with its rate. `room`: whether the rest of the file is enough for so many more pieces.
    pub(crate) fn done(&mut self, thread: u32, turn: Turn, rate: f64, room: impl Fn(u64) -> bool) {
        if self.settled || turn.stage != self.stage || !turn.trial {
            return;
        }
        if let Some(Some(rates)) = self.ways.get_mut(turn.way).filter(|_| turn.counted) {
            rates.push(rate);
        }
        self.ended[thread as usize] += 1;
        if self.ended.iter().all(|&ended| ended >= self.trials()) {
            self.conclude(room);
        }
    }

    /// The number of threads has been tried in every way.
    fn conclude(&mut self, room: impl Fn(u64) -> bool) {
        let rate =
            |way: usize| self.ways[way].as_ref().filter(|rates| !rates.is_empty()).map_or(0.0, |rates| median(rates));
        let first = (self.best, rate(self.best) * WORTH);
        let (best, _) = (0..self.ways.len())
            .map(|way| (way, rate(way)))
            .fold(first, |best, other| if other.0 != self.best && other.1 > best.1 { other } else { best });
        let total = rate(best) * f64::from(self.threads);
        match self.before {
            // A way that was dropped meanwhile is none to go back to.
            Some((way, threads, before)) if total < WORTH * before && self.ways[way].is_some() => {
                (self.best, self.threads) = (way, threads);
                self.conclude_for_good();
            }
            _ => {
                self.best = best;
                let more = self.more_threads();
                if more > self.threads && room(self.pieces(more)) {
                    self.before = Some((best, self.threads, total));
                    self.threads = more;
                    self.forget();
                } else {
                    self.conclude_for_good();
                }
            }
        }
    }

    fn conclude_for_good(&mut self) {
        (self.settled, self.found) = (true, true);
    }

    /// Pieces that each thread reads in a stage.
    fn trials(&self) -> usize {
        (self.rounds.warm_up + self.rounds.counted) * self.ways.iter().flatten().count()
    }

    fn forget(&mut self) {
        self.stage += 1;
        self.ways.iter_mut().flatten().for_each(Vec::clear);
        self.begun = vec![0; self.threads as usize];
        self.ended = self.begun.clone();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ROUNDS: Rounds = Rounds { warm_up: 1, counted: 3 };

    /// A file of so many pieces, each of which takes the time that `time` gives for way and threads, read to its end: the
    /// setting found, and how many pieces were read in each way.
    fn read(mut search: Search, pieces: u64, time: impl Fn(usize, u32) -> f64) -> (Search, Vec<u64>) {
        let (mut left, mut counts) = (pieces, vec![0; search.ways.len()]);
        // When each thread is next free.
        let mut free: Vec<f64> = Vec::new();
        while left > 0 {
            free.resize(search.threads() as usize, free.first().copied().unwrap_or(0.0));
            let thread = (0..free.len()).min_by(|&left, &right| free[left].total_cmp(&free[right])).unwrap();
            let turn = search.next(thread as u32).unwrap();
            let took = time(turn.way, search.threads());
            free[thread] += took;
            left -= 1;
            counts[turn.way] += 1;
            search.done(thread as u32, turn, 1.0 / took, |more| more <= left);
        }
        (search, counts)
    }

    #[test]
    fn search_goes_on_with_the_threads_that_could_be_started() {
        for (first, limit) in [(1, 1), (1, 3), (8, 3), (8, 1)] {
            let mut search = Search::new(2, ROUNDS, (0, first), 64);
            // Two stages of one thread and two, then the third cannot be started; or all at once.
            while search.threads() <= limit {
                for thread in 0..search.threads() {
                    let turn = search.next(thread).unwrap();
                    search.done(thread, turn, 1.0, |_| true);
                }
            }
            search.limit_threads(limit);
            assert_eq!((search.threads(), search.next(limit)), (limit, None));
            let (search, _) = read(search, 1000, |way, _| [1.0, 0.5][way]);
            assert!(search.settled && search.threads() <= limit, "{first} {limit}: {search:?}");
        }
    }

    #[test]
    fn threads_grow_while_they_help_and_no_further() {
        // Up to four threads are served in full, more share what four get.
        let time = |way: usize, threads: u32| [1.0, 0.5, 2.0][way] * (f64::from(threads) / 4.0).max(1.0);
        for (most, found) in [(1, 1), (2, 2), (3, 3), (4, 4), (64, 4)] {
            let (search, counts) = read(Search::new(3, ROUNDS, (0, 1), most), 10_000, time);
            assert_eq!((search.best(), search.threads(), search.settled), (1, found, true), "up to {most}");
            assert!(counts[1] > 9_800, "{counts:?}");
            assert!(search.clone().next(found).is_none() || found == most);
        }
    }

    #[test]
    fn what_was_remembered_stays_unless_another_is_clearly_better() {
        let found = |other: f64| read(Search::new(2, ROUNDS, (1, 2), 2), 1000, |way, _| [other, 1.0][way]).0.best();
        assert_eq!((found(0.97), found(0.90)), (1, 0));
    }

    #[test]
    fn one_piece_that_was_interrupted_decides_nothing() {
        let mut search = Search::new(2, ROUNDS, (0, 1), 1);
        for piece in 0..8 {
            let turn = search.next(0).unwrap();
            assert!(turn.trial);
            let interrupted = piece == 5;
            search.done(0, turn, if interrupted { 0.01 } else { [1.0, 2.0][turn.way] }, |_| true);
        }
        assert_eq!((search.best(), search.settled), (1, true));
    }

    #[test]
    fn threads_that_were_not_tried_to_the_end_are_not_found() {
        let mut search = Search::new(2, ROUNDS, (0, 1), 2);
        for _ in 0..8 {
            assert!(!search.found());
            let turn = search.next(0).unwrap();
            search.done(0, turn, 1.0, |_| true);
        }
        // One thread has had its turns, and two are being tried.
        assert_eq!((search.threads(), search.found()), (2, false));
        for thread in [0, 1].repeat(8) {
            let turn = search.next(thread).unwrap();
            search.done(thread, turn, 0.5, |_| true);
        }
        assert_eq!((search.threads(), search.found()), (1, true));
        let mut settled = Search::new(2, ROUNDS, (1, 2), 2);
        settled.settle();
        assert!(!settled.found());
    }

    #[test]
    fn a_way_that_is_gone_is_not_gone_back_to_and_left_out_but_once() {
        let mut search = Search::new(2, ROUNDS, (0, 1), 2);
        let rate = |way: usize, threads: u32| [1.0, 0.5][way] / f64::from(threads);
        while search.threads() == 1 {
            let turn = search.next(0).unwrap();
            search.done(0, turn, rate(turn.way, 1), |_| true);
        }
        assert!(search.leave_out(0));
        let stage = search.stage;
        assert!(search.leave_out(0));
        assert_eq!(search.stage, stage);
        while !search.found() {
            for thread in [0, 1] {
                let Some(turn) = search.next(thread) else { continue };
                search.done(thread, turn, rate(turn.way, 2), |_| true);
            }
        }
        assert_eq!(search.best(), 1);
    }

    #[test]
    fn a_way_that_is_not_to_be_had_is_left_out() {
        let mut search = Search::new(2, ROUNDS, (0, 1), 1);
        let turn = search.next(0).unwrap();
        assert!(search.leave_out(turn.way));
        let (search, counts) = read(search, 100, |_, _| 1.0);
        assert_eq!((search.best(), counts), (1, vec![0, 100]));
        assert!(!search.clone().leave_out(1));
    }

    proptest! {
        #[test]
        fn a_file_of_any_size_is_read_and_no_thread_too_many_is_asked(
            pieces in 0u64..500, ways in 1usize..4, threads in 1u32..9, most in 1u32..9, scale in 0.1f64..2.0
        ) {
            let time = |way: usize, threads: u32| (1.0 + way as f64) * f64::from(threads).powf(scale - 0.1);
            let (search, counts) = read(Search::new(ways, ROUNDS, (ways - 1, threads), most), pieces, time);
            prop_assert_eq!(counts.iter().sum::<u64>(), pieces);
            prop_assert!(search.threads() <= most.max(1));
        }
    }
}
