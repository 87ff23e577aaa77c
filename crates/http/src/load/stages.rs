//! Loads that change over time: stages, each with its rate or its number of users.

use std::str::FromStr;
use std::time::Duration;

use kelvin_core::quantity::parse_duration_within;

use crate::load::schedule::{
    ClosedLoop, DueRequest, RequestSchedule, TimeDistribution, USER_START_SPACING, arrival_times,
};
use crate::load::slo::MAX_DURATION;

/// Most stages: each has a histogram on every thread.
const MAX_STAGES: usize = 100;

/// Most users and the highest rate of a stage.
const MAX_USERS: u32 = 100_000;
const MAX_RATE: f64 = 1e6;

/// What is asked for during a time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stage<L> {
    /// How long it lasts.
    pub duration: Duration,
    /// Requests a second, or users; 0 for a pause.
    pub level: L,
}

/// Stages with a rate each, one after the other.
pub type RateStage = Stage<f64>;
/// Stages with a number of users each.
pub type UserStage = Stage<u32>;

/// A level as it is written in a list of stages.
pub trait Level: Sized + PartialOrd + Default + Copy {
    /// The level that a text states.
    fn parse(text: &str) -> Option<Self>;
    /// What would be right, in words.
    const HELP: &'static str;
}

impl Level for f64 {
    fn parse(text: &str) -> Option<Self> {
        text.parse().ok().filter(|rate| *rate == 0.0 || (0.001..=MAX_RATE).contains(rate))
    }

    const HELP: &'static str = "give times and rates, such as 10s:100,30s:500; a rate is 0, or from 0.001 to 1000000";
}

impl Level for u32 {
    fn parse(text: &str) -> Option<Self> {
        text.parse().ok().filter(|users| *users <= MAX_USERS)
    }

    const HELP: &'static str = "give times and users, such as 10s:4,30s:64; users are 0 to 100000";
}

/// Stages as they are written, such as `10s:100,30s:500`.
#[derive(Clone, Debug, PartialEq)]
pub struct StageList<L>(pub Vec<Stage<L>>);

impl<L: Level> FromStr for StageList<L> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let stages = text.split(',').map(|part| -> Result<Stage<L>, String> {
            let (duration, level) = part.split_once(':').ok_or(L::HELP)?;
            let duration = parse_duration_within(duration, Duration::from_millis(1), MAX_DURATION)
                .map_err(|error| format!("{part}: {error}"))?;
            let level = L::parse(level).ok_or_else(|| format!("{part}: {}", L::HELP))?;
            Ok(Stage { duration, level })
        });
        let stages: Vec<Stage<L>> = stages.collect::<Result<_, _>>()?;
        if stages.len() > MAX_STAGES {
            return Err(format!("there are more than {MAX_STAGES} stages"));
        }
        if total_duration(&stages) > MAX_DURATION {
            return Err("all stages together take more than a week".into());
        }
        if stages.iter().all(|stage| stage.level <= L::default()) {
            return Err("no stage asks for anything: give one that is above 0".into());
        }
        Ok(Self(stages))
    }
}

/// How long all stages last.
pub fn total_duration<L>(stages: &[Stage<L>]) -> Duration {
    stages.iter().fold(Duration::ZERO, |sum, stage| sum.saturating_add(stage.duration))
}

/// The rate of all stages together.
pub(crate) fn mean_rate(stages: &[RateStage]) -> f64 {
    let requests: f64 = stages.iter().map(|stage| stage.level * stage.duration.as_secs_f64()).sum();
    requests / total_duration(stages).as_secs_f64()
}

/// When stages of these lengths end, the first of which begins at `start`, in nanoseconds.
pub(crate) fn stage_ends(start: u64, durations: impl IntoIterator<Item = Duration>) -> impl Iterator<Item = u64> {
    durations.into_iter().scan(start, |end, duration| {
        *end += duration.as_nanos() as u64;
        Some(*end)
    })
}

/// When requests arrive in stages: in each as at its rate, the first of constant ones at its start.
pub(crate) fn staged_arrivals(
    stages: &[RateStage],
    arrivals: TimeDistribution,
    seed: u64,
) -> impl Iterator<Item = u64> {
    let ends = stage_ends(0, stages.iter().map(|stage| stage.duration));
    (0..).zip(stages.iter().copied().zip(ends)).filter(|(_, (stage, _))| stage.level > 0.0).flat_map(
        move |(number, (stage, end))| {
            let length = stage.duration.as_nanos() as u64;
            let times = arrival_times(stage.level, arrivals, seed.wrapping_add(number));
            times.take_while(move |&time| time < length).map(move |time| end - length + time)
        },
    )
}

/// Users of whom as many ask as the stage has: the others wait for a stage that has them, those with the highest numbers first.
#[derive(Debug)]
pub(crate) struct StagedUsers {
    /// All users that any stage has.
    users: ClosedLoop,
    /// For each stage when it ends and how many of these users it has.
    stages: Vec<(u64, u32)>,
}

impl StagedUsers {
    /// These users, in stages that end at times of the users' clock.
    pub(crate) fn new(users: ClosedLoop, stages: Vec<(u64, u32)>) -> Self {
        Self { users, stages }
    }

    /// When a user who would ask at this time does; never if no later stage has that user. Those whom a stage adds begin one after the
    /// other, as at the start of a load.
    fn turn(&self, user: u32, time: u64) -> Option<u64> {
        let current = self.stages.partition_point(|&(end, _)| end <= time);
        let next = current + self.stages[current..].iter().position(|&(_, users)| user < users)?;
        if next == current {
            return Some(time);
        }
        let (start, users_before) = self.stages[next - 1];
        Some(start + u64::from(user.saturating_sub(users_before)) * USER_START_SPACING)
    }
}

impl RequestSchedule for StagedUsers {
    fn next_due(&self) -> Option<u64> {
        self.users.next_due()
    }

    /// Nothing, if the user whose turn it is has to wait for a later stage.
    fn take_due(&mut self) -> Option<DueRequest> {
        let request = self.users.take_due()?;
        let user = request.user?;
        match self.turn(user, request.time) {
            Some(turn) if turn == request.time => Some(request),
            turn => {
                turn.into_iter().for_each(|turn| self.users.ask_at(user, turn));
                None
            }
        }
    }

    fn on_answer(&mut self, user: u32, time: u64) {
        self.users.on_answer(user, time);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::load::schedule::ThinkTime;

    const SECOND: u64 = 1_000_000_000;

    fn rates(text: &str) -> Result<Vec<RateStage>, String> {
        text.parse::<StageList<f64>>().map(|list| list.0)
    }

    #[test]
    fn each_stage_has_its_rate() {
        let stages = rates("1s:4,500ms:0,2s:2").unwrap();
        let times: Vec<u64> = staged_arrivals(&stages, TimeDistribution::Constant, 1).collect();
        let expected = [0.0, 0.25, 0.5, 0.75, 1.5, 2.0, 2.5, 3.0].map(|second| (second * SECOND as f64) as u64);
        assert_eq!(times, expected);
        assert_eq!(
            (total_duration(&stages), stage_ends(0, stages.iter().map(|stage| stage.duration)).last()),
            (Duration::from_millis(3500), Some(3_500_000_000))
        );
        let random: Vec<u64> =
            staged_arrivals(&rates("1s:500,1s:2000").unwrap(), TimeDistribution::Exponential, 1).collect();
        let first = random.partition_point(|&time| time < SECOND);
        // Five standard deviations of Poisson counts.
        assert!(random.is_sorted() && first.abs_diff(500) < 112 && (random.len() - first).abs_diff(2000) < 224);
    }

    #[test]
    fn users_wait_for_stage_that_has_them() {
        let users = ClosedLoop::new(3, ThinkTime::default(), 0, 1);
        let stages = [(1, 1), (2, 3), (3, 0), (4, 2)].map(|(end, users)| (end * SECOND, users));
        let mut staged = StagedUsers::new(users, stages.to_vec());
        let mut asked: Vec<(u64, u32)> = Vec::new();
        // Each answer takes 0.4 s.
        let mut in_flight: Vec<(u64, u32)> = Vec::new();
        while let Some(due) = staged.next_due().into_iter().chain(in_flight.iter().map(|&(end, _)| end)).min() {
            if let Some(index) = in_flight.iter().position(|&(end, _)| end == due) {
                let (end, user) = in_flight.remove(index);
                staged.on_answer(user, end);
            } else if let Some(request) = staged.take_due() {
                asked.push((request.time / (SECOND / 10), request.user.unwrap()));
                in_flight.push((request.time + 2 * SECOND / 5, request.user.unwrap()));
            }
        }
        asked.sort_unstable();
        let expected = [
            (0, 0),
            (4, 0),
            (8, 0),
            (10, 1),
            (10, 2),
            (12, 0),
            (14, 1),
            (14, 2),
            (16, 0),
            (18, 1),
            (18, 2),
            (30, 0),
            (30, 1),
            (34, 0),
            (34, 1),
            (38, 0),
            (38, 1),
        ];
        assert_eq!(asked, expected);
    }

    #[test]
    fn invalid_stages_are_refused() {
        for (text, expected) in [
            ("", "give times and rates"),
            ("10s", "give times and rates"),
            ("10s:", "10s:: give times"),
            ("10s:-1", "10s:-1: give times"),
            ("10s:nan", "10s:nan: give times"),
            ("10s:1e9", "10s:1e9: give"),
            ("x:5", "x:5: a time is"),
            ("10s:5,,", "give times"),
            ("10s:0,1s:0", "no stage asks"),
            ("6d:5,6d:5", "all stages together"),
        ] {
            let error = rates(text).unwrap_err();
            assert!(error.starts_with(expected), "{text}: {error}");
        }
        assert!("1s:1.5".parse::<StageList<u32>>().unwrap_err().contains("users are 0 to 100000"));
        assert!(rates(&["1s:5"; 101].join(",")).unwrap_err().contains("more than 100"));
    }

    proptest! {
        #[test]
        fn any_text_is_stages_or_refused(text in "[0-9smhd:,.x-]{0,40}") {
            if let Ok(StageList(stages)) = text.parse::<StageList<f64>>() {
                prop_assert!(total_duration(&stages) <= MAX_DURATION && stages.len() == text.split(',').count());
            }
        }
    }
}
