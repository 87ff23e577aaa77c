//! Which level of compression is fastest over a connection: what each costs and saves is measured, and what the connection takes.
//!
//! For each byte of a file a sender takes the time of its work or that of the connection, whichever is longer, since both go on at the
//! same time. A higher level adds to the first and takes from the second.

use std::time::Duration;

use super::CompressionLevel;

/// The levels that are tried, of which 0 is none. Those between differ by less than 5 % of what is sent, and those above take
/// longer than any connection is worth.
const LADDER: [u8; 7] = [0, 1, 3, 6, 9, 12, 19];
/// Where it begins: the usual level of zstd.
const FIRST_POSITION: usize = 2;
/// Least bytes and time after which a level is judged: above the time slices of a scheduler.
const MIN_WINDOW_BYTES: u64 = 1 << 20;
const MIN_WINDOW_TIME: Duration = Duration::from_millis(20);
/// The share of its time for which a sender waits for a connection that holds it back.
const WAITING_SHARE: f64 = 0.25;
/// More than a socket's buffer takes by default (tcp_wmem): this many bytes that went without a wait have gone over the link.
const BUFFER_BYTES: u64 = 4 << 20;
/// After this many the connection may be another one.
const FORGOTTEN_BYTES: u64 = 16 * BUFFER_BYTES;
/// A level is left for one that is to take at least this much less time.
const MIN_GAIN: f64 = 0.95;
/// A step up that brings less than this was none: the receiver, or its disk, is what is waited for.
const NO_GAIN: f64 = 0.98;
/// By how much the next level is expected to take longer that was not tried.
const NEXT_LEVEL_COST: f64 = 2.0;
/// Windows after which a level's figures are too old, since other files may have come.
const MAX_AGE: u32 = 128;

/// What became of a piece.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SentPiece {
    pub(super) content: u64,
    pub(super) sent: u64,
    pub(super) is_incompressible: bool,
    pub(super) compress: Duration,
    /// How long the connection was waited for.
    pub(super) wait: Duration,
    /// All the time since the piece before.
    pub(super) elapsed: Duration,
}

/// What a level costs, and leaves.
#[derive(Clone, Copy, Debug)]
struct LevelFigures {
    /// Seconds for a byte.
    compress: f64,
    /// Bytes that are sent for one.
    remaining: f64,
    age: u32,
}

/// What has been sent since a level was judged.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    content: u64,
    sent: u64,
    /// Of these, what was compressed, and to how much.
    compressed: u64,
    compressed_sent: u64,
    compress: f64,
    wait: f64,
    elapsed: f64,
}

/// Chooses the level of the next piece.
#[derive(Debug)]
pub(super) struct LevelChooser {
    fixed: Option<u8>,
    position: usize,
    figures: [Option<LevelFigures>; LADDER.len()],
    window: Window,
    /// Seconds that the connection takes for a byte, as long as it is waited for.
    connection: Option<f64>,
    /// Bytes that went without a wait since there was one.
    unblocked_bytes: u64,
    /// In how many windows it was waited for since there was one without: in the first of them its buffers were filled.
    waiting_windows: u32,
    /// The level before the last step up, and the seconds for a byte of a file there.
    before_step_up: Option<(usize, f64)>,
    /// The highest that was of use, and how many windows ago it was found.
    ceiling: Option<(usize, u32)>,
}

impl LevelChooser {
    pub(super) fn new(level: CompressionLevel) -> Self {
        Self {
            fixed: if let CompressionLevel::Fixed(level) = level { Some(level) } else { None },
            position: FIRST_POSITION,
            figures: [None; LADDER.len()],
            window: Window::default(),
            connection: None,
            unblocked_bytes: 0,
            waiting_windows: 0,
            before_step_up: None,
            ceiling: None,
        }
    }

    /// The level of the next piece; 0 where it is not to be compressed.
    pub(super) fn level(&self) -> u8 {
        self.fixed.unwrap_or(LADDER[self.position])
    }

    /// Bytes a second that the connection takes, if it was waited for.
    pub(super) fn connection_rate(&self) -> Option<u64> {
        self.connection.map(|seconds| (1.0 / seconds) as u64)
    }

    /// A piece was sent by this level.
    pub(super) fn record(&mut self, piece: &SentPiece) {
        let window = &mut self.window;
        window.content += piece.content;
        window.sent += piece.sent;
        if !piece.is_incompressible {
            window.compressed += piece.content;
            window.compressed_sent += piece.sent;
        }
        window.compress += piece.compress.as_secs_f64();
        window.wait += piece.wait.as_secs_f64();
        window.elapsed += piece.elapsed.as_secs_f64();
        if window.content >= MIN_WINDOW_BYTES && window.elapsed >= MIN_WINDOW_TIME.as_secs_f64() {
            let window = std::mem::take(&mut self.window);
            self.judge(&window);
        }
    }

    fn judge(&mut self, window: &Window) {
        let is_waiting = window.wait >= WAITING_SHARE * window.elapsed;
        self.update_connection(window, is_waiting);
        if self.fixed.is_some() {
            return;
        }
        self.update_figures(window);
        let pace = window.elapsed / window.content as f64;
        if let Some((position, pace_before)) = self.before_step_up.take()
            && pace > NO_GAIN * pace_before
        {
            self.ceiling = Some((self.position.saturating_sub(1).max(position), 0));
            self.position = position;
            return;
        }
        let other = (window.elapsed - window.wait - window.compress).max(0.0) / window.content as f64;
        let next = self.next_position(other, pace);
        self.before_step_up = (next > self.position).then_some((self.position, pace));
        self.position = next;
    }

    fn update_connection(&mut self, window: &Window, is_waiting: bool) {
        if is_waiting {
            self.connection = Some(window.elapsed / window.sent.max(1) as f64);
            self.unblocked_bytes = 0;
            self.waiting_windows = self.waiting_windows.saturating_add(1);
            return;
        }
        self.waiting_windows = 0;
        self.unblocked_bytes = self.unblocked_bytes.saturating_add(window.sent);
        if self.unblocked_bytes >= FORGOTTEN_BYTES && self.fixed.is_none() {
            (self.connection, self.unblocked_bytes) = (None, BUFFER_BYTES);
        }
    }

    fn update_figures(&mut self, window: &Window) {
        for figures in &mut self.figures {
            *figures = figures.filter(|figures| figures.age < MAX_AGE);
            figures.iter_mut().for_each(|figures| figures.age += 1);
        }
        self.ceiling = self.ceiling.map(|(position, age)| (position, age + 1)).filter(|(_, age)| *age < MAX_AGE);
        if window.compressed > 0 {
            let content = window.compressed as f64;
            let (compress, remaining) = (window.compress / content, window.compressed_sent as f64 / content);
            self.figures[self.position] = Some(LevelFigures { compress, remaining, age: 0 });
        }
    }

    /// Where it goes on, where all else takes this long for a byte of a file, and the whole that long.
    fn next_position(&self, other: f64, pace: f64) -> usize {
        let (is_waiting, is_steady) = (self.waiting_windows > 0, self.waiting_windows > 1);
        if is_waiting && !is_steady {
            return self.position;
        }
        let ceiling = self.ceiling.map_or(LADDER.len() - 1, |(position, _)| position);
        let connection = self.connection.unwrap_or_default();
        let may_descend = is_waiting || self.unblocked_bytes >= BUFFER_BYTES;
        let predicted = |position: usize| {
            let figures = self.figures[position]?;
            Some((other + figures.compress).max(figures.remaining * connection))
        };
        let current = predicted(self.position).unwrap_or(pace);
        let lowest = if may_descend { 0 } else { self.position };
        let known = (lowest..=ceiling).filter_map(|position| Some((position, predicted(position)?)));
        let best =
            known.fold((self.position, current * MIN_GAIN), |best, next| if next.1 < best.1 { next } else { best });
        if best.0 != self.position {
            return best.0;
        }
        let is_unknown = |position: usize| self.figures[position].is_none();
        let (lower, higher) = (self.position.saturating_sub(1), self.position + 1);
        let compress = self.figures[self.position].map_or(0.0, |figures| figures.compress);
        let may_gain = other + NEXT_LEVEL_COST * compress < MIN_GAIN * pace;
        if is_waiting && higher <= ceiling && is_unknown(higher) && may_gain {
            higher
        } else if !is_waiting && may_descend && self.connection.is_none() && is_unknown(lower) {
            lower
        } else {
            self.position
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What text costs by the levels of the ladder, in nanoseconds a byte, and how much of it is left, as zstd has it on a CPU of 2020.
    const COSTS: [f64; LADDER.len()] = [0.0, 2.0, 3.3, 9.0, 17.0, 45.0, 350.0];
    const REMAINING: [f64; LADDER.len()] = [1.0, 0.40, 0.35, 0.31, 0.30, 0.29, 0.26];
    /// Reading, hashing and encrypting.
    const OTHER_COST: f64 = 0.6;
    const PIECE: u64 = 1 << 20;

    /// A connection that takes a byte in this many nanoseconds, with a buffer; and a receiver that takes one of a file in that many.
    struct SimulatedConnection {
        byte_time: f64,
        buffer: f64,
        receiver_time: f64,
    }

    /// The levels of all pieces, and how long these took.
    fn run(pieces: usize, connection: impl Fn(usize) -> SimulatedConnection, is_text: bool) -> (Vec<u8>, f64) {
        let mut chooser = LevelChooser::new(CompressionLevel::Auto);
        let (mut levels, mut time, mut free_at) = (Vec::new(), 0.0, 0.0_f64);
        for number in 0..pieces {
            let SimulatedConnection { byte_time, buffer, receiver_time } = connection(number);
            let level = chooser.level();
            let position = LADDER.iter().position(|known| *known == level).unwrap();
            let is_compressed = is_text && level > 0;
            let sent = if is_compressed { PIECE as f64 * REMAINING[position] } else { PIECE as f64 };
            let compress = if is_compressed { PIECE as f64 * COSTS[position] } else { 0.0 };
            let work = compress + PIECE as f64 * OTHER_COST;
            let drain = (sent * byte_time).max(PIECE as f64 * receiver_time);
            free_at = free_at.max(time + work) + drain;
            // It is written once all but what the buffer holds has gone.
            let wait = (free_at - buffer * byte_time - time - work).max(0.0);
            time += work + wait;
            let seconds = |nanoseconds: f64| Duration::from_secs_f64(nanoseconds / 1e9);
            chooser.record(&SentPiece {
                content: PIECE,
                sent: sent as u64,
                is_incompressible: level > 0 && !is_compressed,
                compress: seconds(compress),
                wait: seconds(wait),
                elapsed: seconds(work + wait),
            });
            levels.push(level);
        }
        (levels, time)
    }

    fn link(bytes_per_second: f64) -> impl Fn(usize) -> SimulatedConnection {
        move |_| SimulatedConnection { byte_time: 1e9 / bytes_per_second, buffer: 1e6, receiver_time: 0.0 }
    }

    /// How long one level for all pieces takes.
    fn time_of_level(pieces: usize, position: usize, byte_time: f64) -> f64 {
        (pieces as u64 * PIECE) as f64 * (OTHER_COST + COSTS[position]).max(REMAINING[position] * byte_time)
    }

    #[test]
    fn link_and_cpu_decide_level() {
        const PIECES: usize = 2000;
        for (megabytes, expected) in [(0.5, 19..=19), (1.0, 12..=12), (12.5, 6..=9), (125.0, 1..=3), (5000.0, 0..=0)] {
            let (levels, time) = run(PIECES, link(megabytes * 1e6), true);
            let count = levels.iter().filter(|level| expected.contains(*level)).count();
            assert!(count > PIECES * 9 / 10, "{megabytes} MB/s: {:?}", &levels[..200]);
            let best = (0..LADDER.len()).map(|position| time_of_level(PIECES, position, 1e3 / megabytes));
            let best = best.fold(f64::INFINITY, f64::min);
            assert!(time < 1.08 * best, "{megabytes} MB/s: {}", time / best);
        }
    }

    #[test]
    fn change_of_link_is_followed() {
        let (slow, fast) = (link(12.5e6), link(5e9));
        let (levels, _) = run(2000, |number| if number < 500 { slow(number) } else { fast(number) }, true);
        assert!(matches!(levels[499], 6..=9) && levels[1000] == 0, "{:?}", &levels[480..1010]);
        let (levels, _) = run(2000, |number| if number < 500 { fast(number) } else { slow(number) }, true);
        assert!(levels[499] == 0 && matches!(levels[700], 6..=9), "{:?}", &levels[480..710]);
    }

    #[test]
    fn noise_leaves_level_alone() {
        let (levels, time) = run(500, link(12.5e6), false);
        assert!(levels.iter().all(|level| *level <= 6), "{levels:?}");
        assert!(time < 1.05 * time_of_level(500, 0, 80.0));
    }

    /// A receiver that takes 50 MB/s of files gains nothing by fewer bytes.
    #[test]
    fn slow_receiver_does_not_raise_level() {
        let connection = |_| SimulatedConnection { byte_time: 1.0, buffer: 1e6, receiver_time: 20.0 };
        let (levels, _) = run(2000, connection, true);
        let count = levels.iter().filter(|level| **level <= 3).count();
        assert!(count > 1800, "{count}: {:?}", &levels[..200]);
    }

    #[test]
    fn fixed_level_stays() {
        let mut chooser = LevelChooser::new(CompressionLevel::Fixed(22));
        let wait = Duration::from_secs(1);
        for _ in 0..100 {
            chooser.record(&SentPiece { content: PIECE, sent: 1000, wait, elapsed: wait, ..SentPiece::default() });
        }
        assert_eq!((chooser.level(), chooser.connection_rate()), (22, Some(1000)));
    }

    #[test]
    fn extreme_figures_are_handled() {
        let mut chooser = LevelChooser::new(CompressionLevel::Auto);
        for (content, sent) in [(0, 0), (u64::MAX / 1000, 1), (1, u64::MAX / 1000), (PIECE, 0)] {
            for time in [Duration::ZERO, Duration::from_nanos(1), Duration::from_secs(1 << 40)] {
                let (compress, wait, elapsed) = (time, time, time);
                let is_incompressible = sent > content;
                let piece = SentPiece { content, sent, is_incompressible, compress, wait, elapsed };
                (0..3).for_each(|_| chooser.record(&piece));
                assert!(chooser.level() <= 19);
            }
        }
    }
}
