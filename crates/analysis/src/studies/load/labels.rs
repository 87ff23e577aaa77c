//! How sentences and titles name the sweeps of a study and their parts.

use super::*;

/// A resource, as a noun after "the".
pub(super) fn resource_name(word: Name) -> &'static str {
    match resource(word) {
        Some(Resource::Disk) => "disk",
        Some(Resource::DiskRequests) => "disk (by requests)",
        Some(Resource::Link) => "network",
        Some(Resource::ServerCpu) => "CPU of the server",
        Some(Resource::ServerThread) => "busiest thread of the server",
        Some(Resource::Workers) => "number of workers",
        Some(Resource::ClientCpu) => "CPU of the client",
        Some(Resource::Generator) => "busiest thread of the load generator",
        Some(Resource::ClientWindow) => "client's receive window",
        None => word.as_str(),
    }
}

pub(super) fn resource(word: Name) -> Option<Resource> {
    Resource::ALL.iter().copied().find(|resource| word == *resource.name())
}

pub(super) fn resource_id(resource: Resource) -> Name {
    Name::new(resource.name())
}

pub(super) fn users_text(count: u64) -> String {
    if count == 1 { "one user".to_owned() } else { format!("{count} users") }
}

/// `+0.4 %`.
pub(super) fn signed_percent(share: f64) -> String {
    // Zero that is added makes minus zero plain.
    format!("{:+.1} %", (share * 1000.0).round() / 10.0 + 0.0)
}

/// A duration that was requested rather than measured, without digits that suggest a measurement: `2 s` for `2.00 s`.
pub(super) fn round_time(nanoseconds: f64) -> String {
    value_text(nanoseconds, Unit::Nanoseconds).replace(".00 ", " ").replace(".0 ", " ")
}

/// What is held over a sweep, where it is not the usual: ` with one fixed file`, ` with 1 s of think time`.
pub(super) fn sweep_suffix(fixed: &Case) -> String {
    let pattern = (!is_usual_pattern(fixed)).then(|| pattern_text(fixed));
    let think = (THINK_TIME.number_in(fixed).unwrap_or(0) > 0).then(|| think_time_text(fixed));
    let parts: Vec<String> = pattern.into_iter().chain(think).collect();
    if parts.is_empty() { String::new() } else { format!(" with {}", parts.join(" and ")) }
}

/// What distinguishes a sweep from the others of its study or from a usual one: `one fixed file, 1 s of think time`; often nothing.
pub(super) fn sweep_label(fixed: &Case, cases: &[Case]) -> String {
    let is_different = |axis: Axis| cases.iter().any(|other| other.get(&axis.name) != fixed.get(&axis.name));
    let parts = [
        (RequestPattern::AXIS, is_usual_pattern(fixed), pattern_text(fixed)),
        (CacheState::AXIS, true, cache_text(fixed)),
        (THINK_TIME, THINK_TIME.number_in(fixed).unwrap_or(0) == 0, think_time_text(fixed)),
    ];
    let shown_parts = parts.into_iter().filter(|(axis, is_usual, _)| !is_usual || is_different(*axis));
    shown_parts.map(|(_, _, part)| part).collect::<Vec<String>>().join(", ")
}

/// What a sweep has of the property of an axis by which sweeps differ.
pub(super) fn property_text(axis: Name, fixed: &Case) -> String {
    match axis {
        axis if axis == THINK_TIME.name => think_time_text(fixed),
        axis if axis == CacheState::AXIS.name => cache_text(fixed),
        _ => pattern_text(fixed),
    }
}

fn is_usual_pattern(fixed: &Case) -> bool {
    matches!(RequestPattern::of(fixed), Some(RequestPattern::Random) | None)
}

fn pattern_text(fixed: &Case) -> String {
    let words = match RequestPattern::of(fixed) {
        Some(RequestPattern::Fixed) => "one fixed file",
        Some(RequestPattern::Sequence) => "files in sequence",
        Some(RequestPattern::Zipf) => "few files asked for most",
        Some(RequestPattern::Random) | None => "random files",
    };
    words.into()
}

fn cache_text(fixed: &Case) -> String {
    if CacheState::of(fixed) == Some(CacheState::Cached) { "files in memory" } else { "files from the disk" }.into()
}

fn think_time_text(fixed: &Case) -> String {
    match THINK_TIME.number_in(fixed).unwrap_or(0) {
        0 => "no think time".into(),
        milliseconds => format!("{} of think time", round_time(milliseconds as f64 * 1e6)),
    }
}
