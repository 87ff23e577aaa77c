//! The fastest way of reading a file, and its number of threads, found while the file is read.
//!
//! Pure: it receives the time of each piece of the file, and decides how to read the next one. Each thread reads pieces in every
//! way, one after another, then goes on with the best one. When all have done so there are twice as many threads, until that is no faster.
//! No thread waits for another.

use kelvin_stats::median;

/// Times that each thread tries each way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TrialRounds {
    /// To have buffers and mappings made.
    pub(crate) warm_up: usize,
    /// Of which the median counts.
    pub(crate) measurements: usize,
}

/// How much faster another way must be than the one remembered or found first, or a number of threads than half of it. An equal
/// one is not worth a change.
const MIN_SPEEDUP: f64 = 1.05;

/// A thread's next piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PieceAssignment {
    /// The way, by its place among the candidates.
    pub(crate) method: usize,
    /// Whether it is a part of the search.
    pub(crate) is_trial: bool,
    stage: u32,
    is_counted: bool,
}

/// A search over this many ways and up to this many threads.
#[derive(Clone, Debug)]
pub(crate) struct MethodSearch {
    /// Rates of the pieces read in each way by this number of threads, in bytes a nanosecond; none for an unavailable way.
    method_rates: Vec<Option<Vec<f64>>>,
    rounds: TrialRounds,
    /// The way that is best so far.
    pub(crate) best: usize,
    /// Threads that are to read now.
    pub(crate) threads: u32,
    max_threads: u32,
    stage: u32,
    /// Pieces that each thread has begun and ended in this stage.
    started_trials: Vec<usize>,
    finished_trials: Vec<usize>,
    /// The setting before the last growth, and its rate.
    previous_best: Option<(usize, u32, f64)>,
    is_finished: bool,
    /// Whether it has ended by its trials, and not because there was nothing to try: its setting is a result.
    pub(crate) is_conclusive: bool,
}

impl MethodSearch {
    /// Begins with this way and number of threads.
    pub(crate) fn new(methods: usize, rounds: TrialRounds, (method, threads): (usize, u32), max_threads: u32) -> Self {
        let mut search = Self {
            method_rates: vec![Some(Vec::new()); methods],
            rounds,
            best: method,
            threads: threads.clamp(1, max_threads.max(1)),
            max_threads: max_threads.max(1),
            stage: 0,
            started_trials: Vec::new(),
            finished_trials: Vec::new(),
            previous_best: None,
            is_finished: false,
            is_conclusive: false,
        };
        search.start_stage();
        search
    }

    /// Reports that there can be no more than this many threads.
    pub(crate) fn limit_threads(&mut self, threads: u32) {
        self.max_threads = threads.clamp(1, self.max_threads);
        if self.threads > self.max_threads {
            // What was tried with fewer is the setting to go back to.
            self.previous_best =
                self.previous_best.filter(|&(_, previous_threads, _)| previous_threads < self.max_threads);
            self.threads = self.max_threads;
            self.start_stage();
        }
    }

    /// Ends it before it has begun: its setting is the initial one.
    pub(crate) fn skip(&mut self) {
        self.is_finished = true;
    }

    /// Pieces that the stage with this number of threads takes.
    pub(crate) fn stage_pieces(&self, threads: u32) -> u64 {
        self.trials_per_thread() as u64 * u64::from(threads)
    }

    /// A thread's next piece; nothing if it is one too many.
    pub(crate) fn next_piece(&mut self, thread: u32) -> Option<PieceAssignment> {
        if thread >= self.threads {
            return None;
        }
        let mut turn = PieceAssignment { method: self.best, is_trial: false, stage: self.stage, is_counted: false };
        let trial = if self.is_finished { usize::MAX } else { self.started_trials[thread as usize] };
        let available: Vec<usize> =
            (0..self.method_rates.len()).filter(|&method| self.method_rates[method].is_some()).collect();
        if trial < self.trials_per_thread() && !available.is_empty() {
            self.started_trials[thread as usize] += 1;
            // Every thread begins with another way, so that the shared hardware is tried in all ways at once.
            turn.method = available[(trial + thread as usize) % available.len()];
            turn.is_trial = true;
            turn.is_counted = trial / available.len() >= self.rounds.warm_up;
        }
        Some(turn)
    }

    /// Reports that a way is unavailable; whether there is another one.
    pub(crate) fn drop_method(&mut self, method: usize) -> bool {
        // Another thread may have reported it already.
        if self.method_rates[method].take().is_some() {
            // The counts would not come out even: the stage begins anew.
            self.start_stage();
        }
        let first = self.method_rates.iter().position(Option::is_some);
        if self.best == method {
            self.best = first.unwrap_or(method);
        }
        first.is_some()
    }

    /// Reports a piece, with its rate. `room`: whether the rest of the file is enough for this many more pieces.
    pub(crate) fn record_piece(
        &mut self,
        thread: u32,
        turn: PieceAssignment,
        rate: f64,
        has_room: impl Fn(u64) -> bool,
    ) {
        if self.is_finished || turn.stage != self.stage || !turn.is_trial {
            return;
        }
        if let Some(Some(rates)) = self.method_rates.get_mut(turn.method).filter(|_| turn.is_counted) {
            rates.push(rate);
        }
        self.finished_trials[thread as usize] += 1;
        if self.finished_trials.iter().all(|&count| count >= self.trials_per_thread()) {
            self.end_stage(has_room);
        }
    }

    /// The number of threads has been tried in every way.
    fn end_stage(&mut self, has_room: impl Fn(u64) -> bool) {
        let rate = |method: usize| {
            self.method_rates[method].as_ref().filter(|rates| !rates.is_empty()).map_or(0.0, |rates| median(rates))
        };
        let first = (self.best, rate(self.best) * MIN_SPEEDUP);
        let (best, _) =
            (0..self.method_rates.len()).map(|method| (method, rate(method))).fold(first, |best, candidate| {
                if candidate.0 != self.best && candidate.1 > best.1 { candidate } else { best }
            });
        let total = rate(best) * f64::from(self.threads);
        if let Some((method, threads, previous_rate)) = self.previous_best
            && total < MIN_SPEEDUP * previous_rate
            // A way that was dropped meanwhile is none to go back to.
            && self.method_rates[method].is_some()
        {
            (self.best, self.threads) = (method, threads);
        } else {
            self.best = best;
            let next_threads = self.threads.saturating_mul(2).min(self.max_threads);
            if next_threads > self.threads && has_room(self.stage_pieces(next_threads)) {
                self.previous_best = Some((best, self.threads, total));
                self.threads = next_threads;
                return self.start_stage();
            }
        }
        (self.is_finished, self.is_conclusive) = (true, true);
    }

    /// Pieces that each thread reads in a stage.
    fn trials_per_thread(&self) -> usize {
        (self.rounds.warm_up + self.rounds.measurements) * self.method_rates.iter().flatten().count()
    }

    fn start_stage(&mut self) {
        self.stage += 1;
        self.method_rates.iter_mut().flatten().for_each(Vec::clear);
        self.started_trials = vec![0; self.threads as usize];
        self.finished_trials = self.started_trials.clone();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ROUNDS: TrialRounds = TrialRounds { warm_up: 1, measurements: 3 };

    /// A file of this many pieces, each of which takes the time that `time` gives for way and threads, read to its end. Returns the
    /// setting found, and how many pieces were read in each way.
    fn read(mut search: MethodSearch, pieces: u64, time: impl Fn(usize, u32) -> f64) -> (MethodSearch, Vec<u64>) {
        let (mut remaining, mut counts) = (pieces, vec![0; search.method_rates.len()]);
        // When each thread is next free.
        let mut free: Vec<f64> = Vec::new();
        while remaining > 0 {
            free.resize(search.threads as usize, free.first().copied().unwrap_or(0.0));
            let thread = (0..free.len()).min_by(|&remaining, &right| free[remaining].total_cmp(&free[right])).unwrap();
            let turn = search.next_piece(thread as u32).unwrap();
            let took = time(turn.method, search.threads);
            free[thread] += took;
            remaining -= 1;
            counts[turn.method] += 1;
            search.record_piece(thread as u32, turn, 1.0 / took, |count| count <= remaining);
        }
        (search, counts)
    }

    #[test]
    fn search_continues_with_fewer_threads() {
        for (first, limit) in [(1, 1), (1, 3), (8, 3), (8, 1)] {
            let mut search = MethodSearch::new(2, ROUNDS, (0, first), 64);
            // Two stages of one thread and two, then the third cannot be started; or all at once.
            while search.threads <= limit {
                for thread in 0..search.threads {
                    let turn = search.next_piece(thread).unwrap();
                    search.record_piece(thread, turn, 1.0, |_| true);
                }
            }
            search.limit_threads(limit);
            assert_eq!((search.threads, search.next_piece(limit)), (limit, None));
            let (search, _) = read(search, 1000, |method, _| [1.0, 0.5][method]);
            assert!(search.is_finished && search.threads <= limit, "{first} {limit}: {search:?}");
        }
    }

    #[test]
    fn threads_double_while_faster() {
        // Up to four threads are served in full, more share what four get.
        let time = |method: usize, threads: u32| [1.0, 0.5, 2.0][method] * (f64::from(threads) / 4.0).max(1.0);
        for (max_threads, expected) in [(1, 1), (2, 2), (3, 3), (4, 4), (64, 4)] {
            let (search, counts) = read(MethodSearch::new(3, ROUNDS, (0, 1), max_threads), 10_000, time);
            assert_eq!((search.best, search.threads, search.is_finished), (1, expected, true), "up to {max_threads}");
            assert!(counts[1] > 9_800, "{counts:?}");
            assert!(search.clone().next_piece(expected).is_none() || expected == max_threads);
        }
    }

    #[test]
    fn remembered_setting_needs_clear_improvement() {
        let best_method =
            |rate: f64| read(MethodSearch::new(2, ROUNDS, (1, 2), 2), 1000, |method, _| [rate, 1.0][method]).0.best;
        assert_eq!((best_method(0.97), best_method(0.90)), (1, 0));
    }

    #[test]
    fn single_slow_piece_changes_nothing() {
        let mut search = MethodSearch::new(2, ROUNDS, (0, 1), 1);
        for piece in 0..8 {
            let turn = search.next_piece(0).unwrap();
            assert!(turn.is_trial);
            let interrupted = piece == 5;
            search.record_piece(0, turn, if interrupted { 0.01 } else { [1.0, 2.0][turn.method] }, |_| true);
        }
        assert_eq!((search.best, search.is_finished), (1, true));
    }

    #[test]
    fn unfinished_stage_is_not_conclusive() {
        let mut search = MethodSearch::new(2, ROUNDS, (0, 1), 2);
        for _ in 0..8 {
            assert!(!search.is_conclusive);
            let turn = search.next_piece(0).unwrap();
            search.record_piece(0, turn, 1.0, |_| true);
        }
        // One thread has had its turns, and two are being tried.
        assert_eq!((search.threads, search.is_conclusive), (2, false));
        for thread in [0, 1].repeat(8) {
            let turn = search.next_piece(thread).unwrap();
            search.record_piece(thread, turn, 0.5, |_| true);
        }
        assert_eq!((search.threads, search.is_conclusive), (1, true));
        let mut skipped = MethodSearch::new(2, ROUNDS, (1, 2), 2);
        skipped.skip();
        assert!(!skipped.is_conclusive);
    }

    #[test]
    fn dropped_method_is_never_reselected() {
        let mut search = MethodSearch::new(2, ROUNDS, (0, 1), 2);
        let rate = |method: usize, threads: u32| [1.0, 0.5][method] / f64::from(threads);
        while search.threads == 1 {
            let turn = search.next_piece(0).unwrap();
            search.record_piece(0, turn, rate(turn.method, 1), |_| true);
        }
        assert!(search.drop_method(0));
        let stage = search.stage;
        assert!(search.drop_method(0));
        assert_eq!(search.stage, stage);
        while !search.is_conclusive {
            for thread in [0, 1] {
                let Some(turn) = search.next_piece(thread) else { continue };
                search.record_piece(thread, turn, rate(turn.method, 2), |_| true);
            }
        }
        assert_eq!(search.best, 1);
    }

    #[test]
    fn unavailable_method_is_dropped() {
        let mut search = MethodSearch::new(2, ROUNDS, (0, 1), 1);
        let turn = search.next_piece(0).unwrap();
        assert!(search.drop_method(turn.method));
        let (search, counts) = read(search, 100, |_, _| 1.0);
        assert_eq!((search.best, counts), (1, vec![0, 100]));
        assert!(!search.clone().drop_method(1));
    }

    proptest! {
        #[test]
        fn any_file_is_read_within_thread_limit(
            pieces in 0u64..500, ways in 1usize..4, threads in 1u32..9, most in 1u32..9, scale in 0.1f64..2.0
        ) {
            let time = |method: usize, threads: u32| (1.0 + method as f64) * f64::from(threads).powf(scale - 0.1);
            let (search, counts) = read(MethodSearch::new(ways, ROUNDS, (ways - 1, threads), most), pieces, time);
            prop_assert_eq!(counts.iter().sum::<u64>(), pieces);
            prop_assert!(search.threads <= most.max(1));
        }
    }
}
