//! The order of reads, in a sentence for each state of the page cache: at how many sizes of files blocks at random take longer.

use kelvin_core::catalogue::file::CacheState;
use kelvin_core::units::{number, percent};
use kelvin_core::{Claim, RatioQuestion};

use crate::result::{StatedConclusion, StudyAnswer};

/// How the times of blocks at random stand to those in order.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Standing {
    Longer,
    Shorter,
    Same,
    Unknown,
}

/// A comparison of one file.
struct Compared {
    state: Option<CacheState>,
    standing: Standing,
    times: f64,
    same_within: Option<f64>,
}

/// The answer of the study from its conclusions; `None` where none is about the order of reads.
pub(crate) fn answer(conclusions: &[StatedConclusion]) -> Option<StudyAnswer> {
    let all: Vec<Compared> = conclusions.iter().filter_map(compared).collect();
    let mut states: Vec<Option<CacheState>> = Vec::new();
    for one in all.iter().filter(|one| one.standing != Standing::Unknown).chain(&all) {
        if !states.contains(&one.state) {
            states.push(one.state);
        }
    }
    let sentence =
        |state: &Option<CacheState>| of_state(*state, all.iter().filter(|one| one.state == *state).collect());
    let says: Vec<String> = states.iter().map(sentence).collect();
    (!says.is_empty()).then(|| StudyAnswer { says: says.join(" "), because: Vec::new() })
}

fn compared(conclusion: &StatedConclusion) -> Option<Compared> {
    let Claim::Ratio { question: RatioQuestion::RandomBesideInOrder, base, ratio, .. } = &conclusion.claim else {
        return None;
    };
    let same_within = conclusion.same_within();
    let standing = match conclusion.holds {
        Some(true) => Standing::Longer,
        Some(false) => Standing::Shorter,
        None if same_within.is_some() => Standing::Same,
        None => Standing::Unknown,
    };
    Some(Compared { state: CacheState::of(&base.case), standing, times: ratio.value, same_within })
}

/// `Uncached: blocks at random take longer than in order at all 8 file sizes, 21.4 to 29.8 times as long.`
fn of_state(state: Option<CacheState>, all: Vec<&Compared>) -> String {
    let name = match state {
        Some(CacheState::Cached) => "Cached",
        Some(CacheState::Uncached) => "Uncached",
        Some(CacheState::Direct) => "Direct",
        _ => "As found",
    };
    let standings = [Standing::Longer, Standing::Shorter, Standing::Same, Standing::Unknown];
    let parts: Vec<String> = standings
        .into_iter()
        .map(|standing| all.iter().filter(|one| one.standing == standing).copied().collect::<Vec<&Compared>>())
        .filter(|some| !some.is_empty())
        .enumerate()
        .map(|(place, some)| part(&some, (place == 0).then_some(all.len())))
        .collect();
    format!("{name}: blocks at random take {}.", parts.join(", and "))
}

/// The files of one standing; the first part of a sentence says of how many.
fn part(some: &[&Compared], of: Option<usize>) -> String {
    let place = match (some.len(), of) {
        (some, Some(all)) if some == all => format!("all {all} file sizes"),
        (some, Some(all)) => format!("{some} of {all} file sizes"),
        (some, None) => some.to_string(),
    };
    let than = if of.is_some() { " than in order" } else { "" };
    match some[0].standing {
        Standing::Longer => format!("longer{than} at {place}, {}", times(some)),
        Standing::Shorter => format!("less long{than} at {place}, {}", times(some)),
        Standing::Same => {
            let within = some.iter().filter_map(|one| one.same_within).fold(0.0, f64::max);
            format!("as long as in order within {} at {place}", percent(within))
        }
        Standing::Unknown => {
            format!("a time that is not known to differ from that in order at {place}, {}", times(some))
        }
    }
}

/// `21.4 to 29.8 times as long`.
fn times(some: &[&Compared]) -> String {
    let least = some.iter().map(|one| one.times).fold(f64::INFINITY, f64::min);
    let most = some.iter().map(|one| one.times).fold(f64::NEG_INFINITY, f64::max);
    match (number(least), number(most)) {
        (least, most) if least == most => format!("{most} times as long"),
        (least, most) => format!("{least} to {most} times as long"),
    }
}
